/* Validation: the loss of held-out text, the same tokens each time and at any world size.
 *
 * The first samples of the text in the order of its seed, which is fixed; all of them when there
 * are fewer than asked for. What does not fill the last micro step is left out of the loss. */
#ifndef ENGINE_VALIDATION_H
#define ENGINE_VALIDATION_H

#include <stdint.h>

#include "base/err.h"
#include "engine/executor.h"

struct rank_setup;
struct data;

struct validation {
    const struct rank_setup *setup;
    struct data *data; /* NULL: the run does not validate */
    int64_t samples;   /* of one validation, over all ranks */
    int64_t micro_steps;
};

/* As the spec says; s is kept until validation_close. */
enum rc validation_open(struct validation *v, const struct rank_setup *s, struct err *e);
void validation_close(struct validation *v);

/* Is one due after this step? The last step of a run always is. */
bool validation_is_due(const struct validation *v, int64_t step);
/* Collective. */
enum rc validation_run(struct validation *v, struct evaluation *out, struct err *e);

#endif
