/* Cutting text by a regular expression as tokenizer files have it. The only user of PCRE2.
 *
 * Such expressions are written for Oniguruma. What both libraries read alike is passed on, `\s` is
 * spelled out as Unicode's White_Space, and what they would read differently (\w, \b, \h, nested
 * classes, anchors) is refused by name. */
#ifndef ENGINE_SPLITTER_H
#define ENGINE_SPLITTER_H

#include <stddef.h>

#include "base/err.h"

struct splitter;      /* a compiled expression, shared by threads */
struct splitter_work; /* what one thread needs to match it */

enum rc splitter_new(struct splitter **out, const char *regex, struct err *e);
void splitter_free(struct splitter *s);

/* s is kept until splitter_work_free. */
struct splitter_work *splitter_work_new(const struct splitter *s);
void splitter_work_free(struct splitter_work *w);

/* The first match that is not empty in text[from, n), valid UTF-8, as *start and *end; *start is n
 * when there is none. RC_LIMIT when the expression takes too many steps. */
enum rc splitter_next(struct splitter_work *w, const char *text, size_t n, size_t from,
    size_t *start, size_t *end, struct err *e);

#endif
