/* Everything the program prints goes through here: the answer to stdout, the rest to stderr.
 *
 * stdout holds the answer and nothing else; under --json exactly one document, also on failure.
 * stderr holds progress, hints, warnings and errors. One thread only. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct args;
struct json;
struct table;
struct out;

enum style { STYLE_NONE, STYLE_BOLD, STYLE_DIM, STYLE_RED, STYLE_GREEN, STYLE_YELLOW };

/* From the global options. *out must be freed with out_free. */
struct out *out_new(const struct args *args);
void out_free(struct out *o);

bool out_is_json(const struct out *o);
bool out_is_quiet(const struct out *o);
bool out_is_plain(const struct out *o);
bool out_is_reproducible(const struct out *o);
/* stdout / stderr is a terminal. */
bool out_is_terminal(const struct out *o);
bool out_err_is_terminal(const struct out *o);

/* --- the answer, to stdout --- */

/* Foreign strings must have gone through text_safe; out_text does that itself. */
void out_printf(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void out_text(struct out *o, const char *text);
/* Several lines: each through text_safe, line ends kept. */
void out_lines(struct out *o, const char *text);
/* Raw bytes, for files asked for on stdout. */
void out_bytes(struct out *o, const void *data, size_t len);
/* Print a table and free it: aligned for people, tab-separated under --plain. */
void out_table(struct out *o, struct table *t, const struct args *args);
/* Pass on what was printed so far. */
void out_flush(struct out *o);

/* A new document with "schema" and "generated_at" (null under --reproducible) in it. */
struct json *out_document(const struct out *o, const char *schema);
/* Print a document; takes doc. */
void out_json(struct out *o, struct json *doc);
/* A text that is the whole answer: printed as it is, under --json as {"NAME": ..., "text": ...}.
 * name and value say which text it is; value may be NULL. */
void out_whole_text(
    struct out *o, const char *schema, const char *name, const char *value, const char *text);
/* One object on one line, for commands that follow something; takes v. */
void out_json_line(struct out *o, struct json *v);

/* --- beside the answer, to stderr --- */

/* A plain line; silent under --quiet, and under --json unless stderr is a terminal. */
void out_note(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "berth: warning: ..."; silent only under --quiet. */
void out_warn(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* State of work going on. On a terminal the line is rewritten, at most ten times a second; else
 * each change of text is one line with a timestamp. Silent as out_note. */
void out_progress(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Remove the progress line. */
void out_progress_end(struct out *o);
/* What to do about the error that is about to be returned; shown below it and in error/1. */
void out_hint(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Several lines as they are, for the short help of a wrong call; silent as out_note. */
void out_short_help(struct out *o, const char *text);
/* As if these options had been read: they may stand behind the one that was wrong. */
void out_force(struct out *o, bool is_json, bool is_reproducible);
/* Handler of SIGINT and SIGTERM for commands without one of their own: leaves with 130; under
 * --json after the document at hand, or with error/1 when there was none. out_arm_interrupt makes
 * that ready. */
void out_arm_interrupt(struct out *o);
void out_leave_on_interrupt(int signal_number);
/* Show how the command ended (only main calls this); returns the exit status. */
int out_finish(struct out *o, enum rc rc, const struct err *e);

/* Ask before something that costs or stops. RC_OK after yes or --yes; RC_CONFIRM after no, without
 * a terminal, or under --no-input, naming the flag. */
enum rc out_confirm(struct out *o, const char *question, struct err *e);

#endif
