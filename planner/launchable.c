#include "planner/launchable.h"

#include <stdio.h>

#include "planner/model.h"

enum { ENGINE_MAX_HEAD_DIM = 256 };

bool engine_has_device(bool is_gpu)
{
    return !is_gpu;
}

bool is_launchable(const struct model *m, bool is_gpu, char buf[LAUNCHABLE_TEXT])
{
    buf[0] = '\0';
    if (!engine_has_device(is_gpu))
        snprintf(buf, LAUNCHABLE_TEXT, "the engine of this build trains on CPU nodes only");
    else if (m->head_dim > ENGINE_MAX_HEAD_DIM)
        snprintf(buf, LAUNCHABLE_TEXT,
            "the bundled engine takes heads of at most %d elements, not %lld", ENGINE_MAX_HEAD_DIM,
            (long long)m->head_dim);
    else if (m->has_qk_norm)
        snprintf(buf, LAUNCHABLE_TEXT,
            "the bundled engine does not have the q and k norms of this model yet");
    return buf[0] == '\0';
}
