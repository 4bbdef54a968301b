#include "inventory/gpu.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/embed.h"
#include "base/str.h"
#include "inventory/fact_table.h"

EMBED(gpus_csv);

enum { NAME_MAX_CHARS = 96 };

struct name {
    char normal[NAME_MAX_CHARS];
    size_t gpu; /* index */
};

/* Read once, kept for the life of the program. */
static struct gpu *gpus;
static size_t n_gpus, gpus_cap;
static struct name *names; /* ids and aliases, sorted */
static size_t n_names, names_cap;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct gpu read_row(struct fact_row *r)
{
    static const char *const VENDORS[] = {"nvidia", "amd"};
    static const char *const SCOPES[] = {"none", "pair", "quad", "mesh", "all", "rack"};
    const char *id = fact_text(r, "id", "");
    struct gpu g = {.id = id,
        .family = fact_text(r, "family", id),
        .form = fact_text(r, "form", "pcie"),
        .aliases = fact_text(r, "aliases", ""),
        .vendor = (enum gpu_vendor)fact_word(r, "vendor", VENDORS, 2),
        .memory_gb_sold = fact_number(r, "memory_gb_sold", 0),
        .memory_bytes = fact_int(r, "memory_mib_driver", 0) << 20,
        .memory_bytes_per_s = 1e9 * fact_number(r, "memory_gb_per_s", 0),
        .bf16_flops_per_s = 1e12 * fact_number(r, "bf16_tflops", 0),
        .fp16_flops_per_s = 1e12 * fact_number(r, "fp16_tflops", 0),
        .fp8_flops_per_s = 1e12 * fact_number(r, "fp8_tflops", 0),
        .fp32_flops_per_s = 1e12 * fact_number(r, "fp32_tflops", 0),
        .bf16_measured_flops_per_s = 1e12 * fact_number(r, "bf16_measured_tflops", 0),
        .link = fact_text(r, "link", "none"),
        .link_bytes_per_s = 1e9 * fact_number(r, "link_gb_per_s", 0),
        .link_scope = (enum gpu_link_scope)fact_word(r, "link_scope", SCOPES, 6),
        .pcie_gen = (int)fact_int(r, "pcie_gen", 4),
        .pcie_bytes_per_s = 1e9 * fact_number(r, "pcie_gb_per_s", 31),
        .tdp_w = fact_number(r, "tdp_w", 0),
        .host_arch = fact_text(r, "host_arch", "x86_64"),
        .source = fact_text(r, "source", "user")};
    if (g.vendor == GPU_NVIDIA)
        g.capability = fact_number(r, "capability", 0);
    if (!*id)
        fact_fail(r, "id", "must not be empty");
    return g;
}

/* Names compare without case, spaces, dashes and the words every seller puts in front. */
static void normalise(char out[NAME_MAX_CHARS], const char *name, size_t len)
{
    static const char *const NOISE[] = {"nvidia", "amd", "geforce", "tesla", "instinct", "quadro"};
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < NAME_MAX_CHARS; i++)
        if (isalnum((unsigned char)name[i]))
            out[n++] = (char)tolower((unsigned char)name[i]);
    out[n] = '\0';
    for (size_t i = 0; i < BASE_COUNT(NOISE); i++) {
        char *at = strstr(out, NOISE[i]);
        size_t k = strlen(NOISE[i]);
        if (at)
            memmove(at, at + k, strlen(at + k) + 1);
    }
}

static void add_name(size_t gpu, const char *text, size_t len)
{
    BASE_GROW(names, names_cap, n_names + 1);
    normalise(names[n_names].normal, text, len);
    names[n_names++].gpu = gpu;
}

/* By name; a name that several models have belongs to the first of them. */
static int compare_names(const void *pa, const void *pb)
{
    const struct name *a = pa, *b = pb;
    int c = strcmp(a->normal, b->normal);
    return c ? c : a->gpu < b->gpu ? -1 : a->gpu > b->gpu;
}

static void index_names(void)
{
    n_names = 0;
    for (size_t i = 0; i < n_gpus; i++) {
        add_name(i, gpus[i].id, strlen(gpus[i].id));
        for (const char *p = gpus[i].aliases; *p;) {
            size_t len = strcspn(p, ";");
            add_name(i, p, len);
            p += len + (p[len] == ';');
        }
    }
    qsort(names, n_names, sizeof(*names), compare_names);
}

static void put(struct fact_row *r)
{
    struct gpu g = read_row(r);
    size_t i = 0;
    if (r->rc)
        return;
    while (i < n_gpus && strcmp(gpus[i].id, g.id) != 0)
        i++;
    BASE_GROW(gpus, gpus_cap, i + 1);
    gpus[i] = g;
    n_gpus = i == n_gpus ? n_gpus + 1 : n_gpus;
}

static struct fact_table facts = {
    .text = embed_gpus_csv, .len = &embed_gpus_csv_len, .put = put, .all_put = index_names};

static void load(void)
{
    facts_load(&facts);
}

enum rc gpu_load_user(const char *path, struct err *e)
{
    pthread_once(&once, load);
    return facts_load_user(&facts, path, e);
}

size_t gpu_count(void)
{
    pthread_once(&once, load);
    return n_gpus;
}

const struct gpu *gpu_at(size_t i)
{
    return i < gpu_count() ? &gpus[i] : NULL;
}

/* The first model of exactly this normalised name. */
static const struct gpu *find_exact(const char *normal)
{
    size_t low = 0, high = gpu_count() ? n_names : 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(names[middle].normal, normal) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_found = *normal && low < n_names && strcmp(names[low].normal, normal) == 0;
    return is_found ? &gpus[names[low].gpu] : NULL;
}

/* Blank a size such as "80GB" or "80 GB" out of a name; its bytes, 0 when there is none. */
static int64_t take_size(char *name)
{
    for (char *p = name; *p; p++) {
        bool is_start = isdigit((unsigned char)*p) && (p == name || !isalnum((unsigned char)p[-1]));
        if (!is_start)
            continue;
        char *end;
        long gb = strtol(p, &end, 10);
        end += strspn(end, " ");
        size_t unit = strncasecmp(end, "gib", 3) == 0  ? 3
                      : strncasecmp(end, "gb", 2) == 0 ? 2
                                                       : tolower((unsigned char)*end) == 'g';
        if (!unit || isalnum((unsigned char)end[unit]) || gb < 4 || gb > 4096)
            continue;
        memset(p, ' ', (size_t)(end - p) + unit);
        return (int64_t)gb * 1000000000;
    }
    return 0;
}

/* Drop endings that name the memory type or a lot of other things sellers add. */
static bool drop_ending(char *normal)
{
    static const char *const ENDINGS[] = {"hbm2e", "hbm3e", "hbm2", "hbm3", "gddr6", "gddr6x",
        "gddr7", "tensorcore", "gpu", "sxm4", "sxm5", "sxm6", "sxm", "pcie", "nvlink", "cc"};
    for (size_t i = 0; i < BASE_COUNT(ENDINGS); i++)
        if (str_ends(normal, ENDINGS[i]) && strlen(normal) > strlen(ENDINGS[i])) {
            normal[strlen(normal) - strlen(ENDINGS[i])] = '\0';
            return true;
        }
    return false;
}

/* How far a size is from what the price list or the driver says, as a share of it. */
static double distance(const struct gpu *g, int64_t memory_bytes)
{
    double x = (double)memory_bytes, sold = 1e9 * g->memory_gb_sold;
    double a = sold > 0 ? fabs(x - sold) / sold : INFINITY;
    double b = g->memory_bytes ? fabs(x / (double)g->memory_bytes - 1) : INFINITY;
    return fmin(a, b);
}

bool gpu_has_memory(const struct gpu *g, int64_t memory_bytes)
{
    return distance(g, memory_bytes) <= 0.07;
}

/* The variant of g's family with this memory: the nearest, of the same form when equally near; g
 * itself when none has it. */
static const struct gpu *variant(const struct gpu *g, int64_t memory_bytes)
{
    if (!memory_bytes || gpu_has_memory(g, memory_bytes))
        return g;
    const struct gpu *best = g;
    double best_distance = INFINITY;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *v = &gpus[i];
        double d = distance(v, memory_bytes);
        if (strcmp(v->family, g->family) != 0 || d > 0.07)
            continue;
        bool is_better = d < best_distance - 1e-9;
        bool is_same_form = d < best_distance + 1e-9 && strcmp(v->form, g->form) == 0;
        if (is_better || is_same_form) {
            best = v;
            best_distance = d;
        }
    }
    return best;
}

const struct gpu *gpu_find(const char *name, int64_t memory_bytes)
{
    char normal[NAME_MAX_CHARS];
    normalise(normal, name, strlen(name));
    const struct gpu *g = find_exact(normal);
    if (g)
        return variant(g, memory_bytes);
    char rest[NAME_MAX_CHARS];
    str_copy(rest, sizeof(rest), name);
    int64_t size = take_size(rest);
    if (!memory_bytes)
        memory_bytes = size;
    normalise(normal, rest, strlen(rest));
    g = find_exact(normal);
    while (!g && drop_ending(normal))
        g = find_exact(normal);
    return g ? variant(g, memory_bytes) : NULL;
}

const char *gpu_family(const char *name)
{
    char normal[NAME_MAX_CHARS], own[NAME_MAX_CHARS];
    normalise(normal, name, strlen(name));
    for (size_t i = 0; i < gpu_count(); i++) {
        normalise(own, gpus[i].family, strlen(gpus[i].family));
        if (strcmp(own, normal) == 0)
            return gpus[i].family;
    }
    return NULL;
}

bool gpu_family_is_open(const char *family, struct str *models)
{
    const struct gpu *first = NULL;
    bool is_open = false;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *g = &gpus[i];
        if (strcmp(g->family, family) != 0 || !(g->memory_bytes > 0))
            continue;
        is_open = is_open || (first && !gpu_has_memory(first, g->memory_bytes));
        str_addf(models, "%s%s", first ? ", " : "", g->id);
        first = first ? first : g;
    }
    return is_open;
}

bool gpu_is_slice(const char *name)
{
    char normal[NAME_MAX_CHARS];
    normalise(normal, name, strlen(name));
    return strstr(normal, "mig") != NULL;
}

const char *gpu_nearest(const char *name)
{
    char normal[NAME_MAX_CHARS];
    normalise(normal, name, strlen(name));
    const char *best = NULL;
    int best_distance = 1 + (int)strlen(normal) / 3;
    for (size_t i = 0; i < gpu_count(); i++) {
        char own[NAME_MAX_CHARS];
        normalise(own, gpus[i].id, strlen(gpus[i].id));
        int d = str_distance(normal, own);
        if (d < best_distance || (d == best_distance && !best)) {
            best = gpus[i].id;
            best_distance = d;
        }
    }
    return best;
}
