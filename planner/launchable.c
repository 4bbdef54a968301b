#include "planner/launchable.h"

#include <stdio.h>

#include "planner/engine_use.h"
#include "planner/model.h"
#include "planner/strategy.h"

enum { ENGINE_MAX_HEAD_DIM = 256 };

bool engine_has_device(bool is_gpu)
{
    return !is_gpu;
}

/* Others are configured, not started. */
static void name_export(enum engine g, char buf[LAUNCHABLE_TEXT])
{
    const char *target = engine_export(g);
    if (target)
        snprintf(buf, LAUNCHABLE_TEXT,
            "engine %s is not started by Berth; `berth export --to %s` writes its configuration",
            engine_name(g), target);
    else
        snprintf(buf, LAUNCHABLE_TEXT,
            "engine %s is not started by Berth; `berth export --to slurm` writes a job script",
            engine_name(g));
}

bool is_launchable(
    const struct strategy *s, const struct model *m, bool is_gpu, char buf[LAUNCHABLE_TEXT])
{
    buf[0] = '\0';
    if (!profile_of(s->engine)->is_bundled)
        name_export(s->engine, buf);
    else if (m->expert_params > 0)
        snprintf(buf, LAUNCHABLE_TEXT,
            "the bundled engine trains dense models: mixtures of experts are only planned");
    else if (m->adapter.rank > 0)
        snprintf(buf, LAUNCHABLE_TEXT,
            "the bundled engine trains whole models: adapters beside a frozen one are only "
            "planned");
    else if (!engine_has_device(is_gpu))
        snprintf(buf, LAUNCHABLE_TEXT, "the engine of this build trains on CPU nodes only");
    else if (m->head_dim > ENGINE_MAX_HEAD_DIM)
        snprintf(buf, LAUNCHABLE_TEXT,
            "the bundled engine takes heads of at most %d elements, not %lld", ENGINE_MAX_HEAD_DIM,
            (long long)m->head_dim);
    return buf[0] == '\0';
}
