/* Errors: a code that decides the exit status, and one sentence ready for the user.
 *
 * A function that can fail returns enum rc and takes struct err *e last. Whoever detects the
 * failure writes the sentence (err_set), whoever knows more puts context in front (err_in), only
 * main and the screens show it. Sentences: no capital, no full stop, subject in quotes. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/* name, exit code of the program, word in error/1 JSON */
#define RC_MAP(X)                                                                                  \
    X(RC_OK, 0, "ok")                                                                              \
    X(RC_FAILED, 1, "failed")                                                                      \
    X(RC_IO, 1, "io")                                                                              \
    X(RC_NOT_FOUND, 1, "not-found")                                                                \
    X(RC_LIMIT, 1, "limit")                                                                        \
    X(RC_USAGE, 2, "usage")                                                                        \
    X(RC_INVALID, 2, "invalid")                                                                    \
    X(RC_NO_FIT, 3, "no-fit")                                                                      \
    X(RC_AUTH, 4, "auth")                                                                          \
    X(RC_NETWORK, 5, "network")                                                                    \
    X(RC_NODE, 6, "node")                                                                          \
    X(RC_CONFIRM, 7, "confirm")                                                                    \
    X(RC_PEER, 6, "peer") /* another rank failed, and says itself why */                           \
    X(RC_RUN_FAILED, 10, "run-failed")                                                             \
    X(RC_NOT_FINISHED, 11, "not-finished")                                                         \
    X(RC_CANCELLED, 12, "cancelled")                                                               \
    X(RC_INTERRUPTED, 130, "interrupted")

enum rc {
#define X(name, exit_code, word) name,
    RC_MAP(X)
#undef X
};

enum { ERR_MSG_MAX = 1024 };

struct err {
    enum rc code;
    char msg[ERR_MSG_MAX]; /* control bytes already replaced: safe for a terminal */
};

/* Start from this: struct err e = ERR_INIT; */
#define ERR_INIT                                                                                   \
    {                                                                                              \
        RC_OK, ""                                                                                  \
    }

/* Record code and sentence, return code. e may be NULL. Control bytes in arguments become '?', a
 * value of more than 200 bytes in 'quotes' loses its middle. */
enum rc err_set(struct err *e, enum rc code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, with ": " and strerror(errno) at the end. */
enum rc err_sys(struct err *e, enum rc code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "context: " in front of the sentence already there; returns the code already there. */
enum rc err_in(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A file that the user named and that is absent, unreadable or too large is bad input: RC_INVALID
 * in place of rc, in e as well. Other codes stay as they are. */
enum rc err_input(struct err *e, enum rc rc);

/* Exit status of the program for a code, as `berth help exit-codes` lists them. */
int rc_exit_code(enum rc code);
/* The first code with this exit status; RC_FAILED when there is none. */
enum rc rc_of_exit_code(int status);

/* Word for error/1 JSON. */
const char *rc_word(enum rc code);

#endif
