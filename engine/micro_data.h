/* What a micro step reads, an element for each token: its id, its target (< 0: none), and where
 * documents are packed how many tokens of its document, and its sequence, stand before it. */
#ifndef ENGINE_MICRO_DATA_H
#define ENGINE_MICRO_DATA_H

#include <stddef.h>
#include <stdint.h>

struct micro_data {
    int32_t *tokens, *targets;
    int32_t *positions; /* NULL: a sequence is one document */
};

/* From a token on. */
static inline struct micro_data micro_data_from(const struct micro_data *m, int64_t token)
{
    return (struct micro_data){
        m->tokens + token, m->targets + token, m->positions ? m->positions + token : NULL};
}

#endif
