/* Following the files of a run folder: metrics, events, state and logs as agent/1 messages.
 *
 *   {"type":"metrics","offset":n,"line":"{...}"}   offset: where to continue after this one
 *   {"type":"event","offset":n,"line":"{...}"}
 *   {"type":"log","rank":r,"offset":n,"text":"..."}
 *   {"type":"beat"}                                every five seconds */
#ifndef ENGINE_AGENT_FOLLOW_H
#define ENGINE_AGENT_FOLLOW_H

#include <stdbool.h>

#include "base/str.h"

struct json;
struct run_spec;
struct follow;

/* from: {"metrics":n,"events":n,"logs":{"RANK":n}}, each where to begin (absent: 0; null: not at
 * all). Reads relative names: the caller is in the run folder. spec is kept. */
struct follow *follow_new(const struct run_spec *spec, const struct json *from);
void follow_free(struct follow *f);

/* Append messages for what is new, up to about a megabyte; true when there was something. Text
 * behind the last line end waits for its line, unless nothing more will come (is_last). */
bool follow_step(struct follow *f, bool is_last, struct str *out);
/* Likewise a beat when it is time for one. */
void follow_beat(struct follow *f, struct str *out, double now_s);

#endif
