#include "planner/limits.h"

#include "base/alloc.h"
#include "base/str.h"
#include "inventory/gpu.h"

static bool allows_provider(const char *words, const struct offer *o)
{
    return job_allows(words, o->provider);
}

static bool allows_region(const char *words, const struct offer *o)
{
    return job_allows(words, o->region);
}

static bool allows_gpu(const char *words, const struct offer *o)
{
    const struct gpu *g = offer_gpu(o);
    if (o->device == DEVICE_CPU)
        return job_allows(words, "cpu");
    return job_allows(words, o->gpu) || (g && job_allows(words, g->family));
}

static bool allows_fabric(const char *words, const struct offer *o)
{
    return job_allows(words, offer_fabric_name(o->fabric));
}

static bool allows_spot(enum spot spot, const struct offer *o)
{
    return o->market == MARKET_SPOT ? spot != SPOT_NO : spot != SPOT_ONLY;
}

/* Limits that are lists of words. */
static const struct {
    const char *name;
    size_t offset; /* of the list in struct job */
    bool (*allows)(const char *words, const struct offer *o);
} LISTS[] = {
    {"provider", offsetof(struct job, provider), allows_provider},
    {"region", offsetof(struct job, region), allows_region},
    {"gpu", offsetof(struct job, gpu), allows_gpu},
    {"fabric", offsetof(struct job, fabric), allows_fabric},
};

static const char *list_of(const struct job *j, size_t i)
{
    return (const char *)j + LISTS[i].offset;
}

bool limits_allow(const struct job *j, const struct offer *o)
{
    for (size_t i = 0; i < BASE_COUNT(LISTS); i++)
        if (!LISTS[i].allows(list_of(j, i), o))
            return false;
    return allows_spot(j->spot, o);
}

static void add_count(struct str *out, const char *name, size_t left_out, bool *is_first)
{
    if (left_out == 0)
        return;
    str_addf(out, *is_first ? ", %s leaves out %zu" : ", %s %zu", name, left_out);
    *is_first = false;
}

void limits_describe(struct str *out, const struct job *j, const struct offers *l)
{
    size_t n = offers_count(l), left_out;
    bool is_first = true;
    str_addf(out, "of %zu offer%s", n, n == 1 ? "" : "s");
    for (size_t k = 0; k < BASE_COUNT(LISTS); k++) {
        left_out = 0;
        for (size_t i = 0; i < n; i++)
            left_out += !LISTS[k].allows(list_of(j, k), offers_at(l, i));
        add_count(out, LISTS[k].name, left_out, &is_first);
    }
    left_out = 0;
    for (size_t i = 0; i < n; i++)
        left_out += !allows_spot(j->spot, offers_at(l, i));
    add_count(out, "spot", left_out, &is_first);
}

static bool fits_any(size_t list, const char *word, const struct offers *l)
{
    for (size_t i = 0; i < offers_count(l); i++)
        if (LISTS[list].allows(word, offers_at(l, i)))
            return true;
    return false;
}

void limits_unmatched(struct str *out, const struct job *j, const struct offers *l)
{
    for (size_t k = 0; k < BASE_COUNT(LISTS); k++) {
        for (const char *p = list_of(j, k); *p; p += *p == ',') {
            size_t n = strcspn(p, ",");
            char *word = base_strndup(p, n);
            if (*word && !fits_any(k, word, l))
                str_addf(out, "%s%s '%s'", out->len ? ", " : "", LISTS[k].name, word);
            free(word);
            p += n;
        }
    }
}
