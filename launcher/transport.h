/* One connection to one host, behind an op table: SSH, or this machine without SSH.
 *
 * Nothing here blocks. Every operation is a step function that is called again and again with the
 * same arguments until it no longer says PROGRESS_WAIT; between the calls poll what `poll` names.
 * One operation at a time on a connection; deadlines are the caller's (launcher/fan.h). */
#ifndef LAUNCHER_TRANSPORT_H
#define LAUNCHER_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum progress { PROGRESS_WAIT, PROGRESS_DONE, PROGRESS_FAILED };

enum { TRANSPORT_FDS = 4, TRANSPORT_CHUNK_BYTES = 4 << 20, EXEC_MAX_OUTPUT = 16 << 20 };

/* Receives output as it comes; stream 1 or 2. */
typedef void (*exec_sink)(void *ctx, int stream, const char *bytes, size_t n);

/* A command on the host. Set command and in before the first step, release afterwards. */
struct exec {
    char *command;       /* for /bin/sh -c; owned */
    struct str in;       /* standard input still to send; may grow while it runs */
    bool keeps_in_open;  /* false: end of file once in is sent */
    struct str out, err; /* what it printed, when there is no sink */
    exec_sink sink;
    void *ctx;
    int status; /* exit status, 128 + signal, -1 when it cannot be told */
};

void exec_init(struct exec *x, const char *command);
void exec_release(struct exec *x);

/* A file to send. The remote file is created or truncated. */
struct put {
    const char *local, *remote; /* borrowed */
    unsigned mode;
    int64_t sent_bytes; /* so far */
};

/* A file to bring; continues behind what `local` already has. */
struct get {
    const char *remote, *local;
    int64_t got_bytes; /* size of local so far */
};

struct transport {
    const struct transport_ops *ops;
};

struct transport_ops {
    const char *name;
    enum progress (*connect)(struct transport *t, struct err *e);
    enum progress (*exec)(struct transport *t, struct exec *x, struct err *e);
    enum progress (*put)(struct transport *t, struct put *p, struct err *e);
    enum progress (*get)(struct transport *t, struct get *g, struct err *e);
    /* Give up the operation in progress: the connection is unusable until connect. */
    void (*drop)(struct transport *t);
    /* What to poll for before the next step; returns how many. */
    int (*poll)(struct transport *t, struct pollfd fds[TRANSPORT_FDS]);
    /* Numeric address the host was reached at, "" before connect. Borrowed, valid until free. */
    const char *(*address)(struct transport *t);
    /* What it is doing, for "no answer while ..." */
    const char *(*stage)(struct transport *t);
    void (*free)(struct transport *t);
};

/* This machine, without SSH. Returns owned. */
struct transport *transport_local_new(void);

/* "/bin/sh -c 'script'", which every login shell understands; the caller frees it. script must not
 * hold newlines (csh). */
char *shell_wrap(const char *script);

#endif
