/* Texts that a run names with a tokenizer become tokens once on each node, before the first step.
 */
#ifndef ENGINE_DATA_TEXT_H
#define ENGINE_DATA_TEXT_H

#include "base/err.h"

struct data_source;

/* The file of tokens of a source of kind text, in folder dir: made now, or by another rank or an
 * earlier attempt from the same text and tokenizer. One rank works, the others of the node wait.
 * *path is the caller's to free. */
enum rc data_text_tokens(
    char **path, const struct data_source *s, const char *dir, int threads, struct err *e);

#endif
