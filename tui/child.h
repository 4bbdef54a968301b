/* `berth` commands run for the screens: exactly the commands they show. A command of its own can
 * hang, crash or be killed without harm to the screens. */
#ifndef TUI_CHILD_H
#define TUI_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/argv.h"
#include "tui/worker.h"

struct mailbox;

enum { CHILD_ERROR = 512, CHILD_MAX_BYTES = 128 << 20 };

/* Payload of the messages of a stream. */
struct child_lines {
    uint64_t serial;
    char *text;    /* whole lines, each ended by '\n'; "" in the last message */
    bool is_ended; /* the command has ended with status; nothing follows */
    int status;
    char error[CHILD_ERROR];
};
void child_lines_free(void *lines);

struct child_stream;
/* Start a command whose output (both streams) is posted as messages of kind. With a log_path the
 * output goes to that file and is read back from there, so that the command outlives the screens.
 * NULL when it cannot be started. */
struct child_stream *child_stream_start(
    const struct argv *argv, int kind, uint64_t serial, const char *log_path, struct mailbox *mb);
/* Stop listening. A command without log_path is ended, the other one goes on. False when the thread
 * hangs (see worker_free). NULL is allowed. */
bool child_stream_free(struct child_stream *s);

#endif
