/* Experts of a model: how they are read and laid down in its dimensions. */
#ifndef PLANNER_MODEL_EXPERTS_H
#define PLANNER_MODEL_EXPERTS_H

#include "planner/model.h"

/* Value type. */
struct mixture {
    int64_t count, top;   /* routed experts of a block, and of a token */
    int64_t width;        /* inside one */
    int64_t shared;       /* width of what every token passes through beside them; 0: none */
    bool has_shared_gate; /* which is weighed by a gate of its own */
    int64_t blocks;       /* that have experts; 0: all. ffn is the width of the others */
};

/* The type of config.json that a mixture's type is like in all but the experts; NULL: it is no
 * mixture. */
const char *model_experts_like(const char *type);
/* Read the experts of a config, the rest being read: ffn is then that of blocks without. One
 * sentence naming the field otherwise. */
enum rc model_read_experts(struct model *m, const struct json *c, struct err *e);
enum rc model_set_experts(struct model *m, const struct mixture *x, struct err *e);

#endif
