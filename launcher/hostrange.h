/* Ranges in host names: node[01-04,07] -> node01 node02 node03 node04 node07, gpu-[b-d]. */
#ifndef LAUNCHER_HOSTRANGE_H
#define LAUNCHER_HOSTRANGE_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/* Expand text into at most max names (RC_LIMIT beyond). A name without brackets is itself; several
 * bracket groups multiply. The caller releases *out with hostrange_free. */
enum rc hostrange_expand(char ***out, size_t *count, const char *text, size_t max, struct err *e);
void hostrange_free(char **names, size_t count);

/* The other way: "node[01-04,07], other" out of names, in their order. Appends to out. */
void hostrange_fold(struct str *out, const char *const *names, size_t count);

#endif
