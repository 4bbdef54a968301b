/* The line between a rank and its agent: JSON lines over an inherited socket. One thread. */
#ifndef ENGINE_CONTROL_H
#define ENGINE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct control;
struct json;

/* fd -1: no agent; events go to standard output, commands never come. */
struct control *control_new(int fd);
void control_free(struct control *c);

/* Takes event. Failures to send are ignored: without an agent the rank ends anyway. */
void control_send(struct control *c, struct json *event);
/* The same for an event that is already a line of text. Allocates nothing. */
void control_send_line(struct control *c, const char *line, size_t len);

/* Next command that has arrived, NULL when there is none now. Caller frees. */
struct json *control_poll(struct control *c);
/* Wait for a command of this name; other commands are kept for control_poll. */
enum rc control_wait(
    struct control *c, const char *cmd, double timeout_s, struct json **out, struct err *e);
/* The agent closed its end. */
bool control_is_gone(const struct control *c);

#endif
