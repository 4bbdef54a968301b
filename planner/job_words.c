/* The words of a job: objectives, markets, precisions, and the lists that limit a search. */
#include <strings.h>

#include "base/alloc.h"
#include "base/str.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "planner/job.h"

static const char *const objective_names[] = {"cost", "time", "balanced"};
static const char *const spot_names[] = {"no", "allow", "only"};

const char *objective_name(enum objective o)
{
    return objective_names[o];
}

const char *spot_name(enum spot s)
{
    return spot_names[s];
}

enum rc objective_parse(const char *word, enum objective *out, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(objective_names); i++) {
        if (strcmp(word, objective_names[i]) == 0) {
            *out = (enum objective)i;
            return RC_OK;
        }
    }
    return err_set(e, RC_USAGE, "unknown objective '%s'; there are cost, time and balanced", word);
}

enum rc spot_parse(const char *word, enum spot *out, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(spot_names); i++) {
        if (strcmp(word, spot_names[i]) == 0) {
            *out = (enum spot)i;
            return RC_OK;
        }
    }
    return err_set(e, RC_USAGE, "spot is '%s'; it may be no, allow or only", word);
}

enum rc job_allow(struct job *j, const char *word, struct err *e)
{
    enum precision p;
    if (precision_parse_trainable(word, &p, NULL))
        return err_set(
            e, RC_USAGE, "nothing called '%s' can be allowed; fp32, bf16 and fp8 can", word);
    bool *const allow[] = {[PRECISION_FP32] = &j->allow_fp32,
        [PRECISION_BF16] = &j->allow_bf16,
        [PRECISION_FP8] = &j->allow_fp8};
    *allow[p] = true;
    return RC_OK;
}

enum rc job_parse_master(struct job *j, const char *word, struct err *e)
{
    struct strategy any;
    enum rc rc = strategy_parse_master(&any, word, e);
    if (!rc)
        j->master_bytes = any.master_bytes;
    return rc;
}

enum rc job_parse_gradients(struct job *j, const char *word, struct err *e)
{
    struct strategy any;
    enum rc rc = strategy_parse_gradients(&any, word, e);
    if (!rc)
        j->fp8_gradients = any.fp8_gradients;
    return rc;
}

bool job_allows(const char *list, const char *word)
{
    size_t n = strlen(word);
    if (list[0] == '\0')
        return true;
    for (const char *p = list; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        if (len == n && strncasecmp(p, word, n) == 0)
            return true;
        p += len;
    }
    return false;
}

/* --- lists --- */

typedef enum rc word_fn(struct strategy *s, const char *word, struct err *e);

static enum rc parse_kind(struct strategy *s, const char *word, struct err *e)
{
    return strategy_kind_parse(word, &s->kind, e);
}

static enum rc parse_offload(struct strategy *s, const char *word, struct err *e)
{
    return offload_parse(word, &s->offload, e);
}

/* Each word of the list must be one that the function knows. */
static enum rc check_words(const char *list, word_fn *fn, struct err *e)
{
    enum rc rc = RC_OK;
    struct strategy any;
    for (const char *p = list; *p && !rc; p += *p == ',') {
        size_t len = strcspn(p, ",");
        char *word = base_strndup(p, len);
        rc = fn(&any, word, e);
        free(word);
        p += len;
    }
    return rc;
}

static enum rc check_moves(const struct job *j, struct err *e)
{
    struct strategy any;
    enum rc rc = RC_OK;
    if (j->reshard[0])
        rc = strategy_parse_reshard(&any, j->reshard, e);
    if (!rc && j->bucket[0])
        rc = strategy_parse_bucket(&any, j->bucket, e);
    if (!rc && j->gather_format[0])
        rc = wire_parse(j->gather_format, &any.gather_format, e);
    if (!rc && j->reduce_format[0])
        rc = wire_parse(j->reduce_format, &any.reduce_format, e);
    bool is_asked = j->reshard[0] || j->bucket[0] || j->gather_format[0] || j->reduce_format[0];
    if (!rc && is_asked && !profile_of(j->engine)->is_bundled)
        rc = err_set(e, RC_USAGE,
            "when parameters are freed, and when and how gradients are reduced, is engine %s's own "
            "affair",
            engine_name(j->engine));
    if (!rc && (j->gather_format[0] || j->reduce_format[0]) && j->model.adapter.rank > 0)
        rc = err_set(e, RC_USAGE,
            "beside a frozen model, adapters and their gradients travel as they are kept: leave "
            "out the gather and reduce formats");
    return rc;
}

/* A family, or "cpu"; NULL when it is neither. */
static const char *family_of(const char *name)
{
    return strcasecmp(name, "cpu") == 0 ? "cpu" : gpu_family(name);
}

enum rc job_settle_gpus(char list[JOB_LIST], struct err *e)
{
    struct str s = STR_INIT;
    enum rc rc = RC_OK;
    for (const char *p = list; *p && !rc; p += *p == ',') {
        char name[JOB_LIST];
        size_t n = strcspn(p, ",");
        snprintf(name, sizeof(name), "%.*s", (int)n, p);
        p += n;
        const char *family = family_of(name), *near = gpu_nearest(name);
        const struct gpu *g = family ? NULL : gpu_find(name, 0);
        if (!g && !family)
            rc = near ? err_set(e, RC_USAGE, "unknown GPU '%s'; did you mean '%s'?", name, near)
                      : err_set(e, RC_USAGE, "unknown GPU '%s'", name);
        str_addf(&s, "%s%s", s.len ? "," : "", family ? family : g ? g->id : name);
    }
    if (!rc && !str_copy(list, JOB_LIST, str_text(&s)))
        rc = err_set(e, RC_LIMIT, "too many GPUs are named");
    str_release(&s);
    return rc;
}

/* Spellings of fabrics become the words of offers/1. */
static enum rc settle_fabrics(char list[JOB_LIST], struct err *e)
{
    struct str s = STR_INIT;
    enum rc rc = RC_OK;
    for (const char *p = list; *p && !rc; p += *p == ',') {
        enum offer_fabric fabric = FABRIC_UNKNOWN;
        char name[JOB_LIST];
        size_t n = strcspn(p, ",");
        snprintf(name, sizeof(name), "%.*s", (int)n, p);
        p += n;
        if (!offer_fabric_parse(name, &fabric) || fabric == FABRIC_UNKNOWN)
            rc = err_set(e, RC_USAGE,
                "unknown fabric '%s'; there are none, ethernet, roce, infiniband, efa and tcpx",
                name);
        str_addf(&s, "%s%s", s.len ? "," : "", offer_fabric_name(fabric));
    }
    if (!rc && !str_copy(list, JOB_LIST, str_text(&s)))
        rc = err_set(e, RC_LIMIT, "too many fabrics are named");
    str_release(&s);
    return rc;
}

enum rc job_settle_lists(struct job *j, struct err *e)
{
    enum rc rc = check_words(j->strategy, parse_kind, e);
    if (!rc)
        rc = check_words(j->offload, parse_offload, e);
    if (!rc)
        rc = check_words(j->recompute, strategy_parse_recompute, e);
    if (!rc)
        rc = check_moves(j, e);
    if (!rc)
        rc = job_settle_gpus(j->gpu, e);
    if (!rc)
        rc = settle_fabrics(j->fabric, e);
    return rc;
}
