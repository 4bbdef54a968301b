#include "planner/model_presets.h"

#include <strings.h>

#include "base/alloc.h"
#include "base/str.h"
#include "planner/model_experts.h"

enum { TIED = 1, QKV_BIAS = 2, QK_NORM = 4 };

struct preset {
    const char *name;
    const char *aliases; /* separated by one space */
    enum model_family family;
    int layers, width, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    int flags;
    double norm_eps, rope_theta;
    double llama3_factor; /* of Llama-3 rope scaling, 0 for none */
};

/* clang-format off */
static const struct preset presets[] = {
    /* for tests and the demo: byte vocabulary */
    {"tiny-gpt2", "", MODEL_GPT2,
        2, 64, 4, 4, 16, 256, 256, 512, TIED, 1e-5, 0, 0},
    {"tiny-llama", "", MODEL_LLAMA,
        2, 64, 4, 2, 16, 176, 256, 512, 0, 1e-5, 1e4, 0},
    {"tiny-qwen3", "", MODEL_LLAMA,
        2, 64, 4, 2, 24, 176, 256, 512, TIED | QK_NORM, 1e-6, 1e6, 0},
    {"nano-llama", "", MODEL_LLAMA,
        4, 128, 4, 2, 32, 384, 256, 1024, 0, 1e-5, 1e4, 0},
    {"micro-llama", "", MODEL_LLAMA,
        8, 192, 6, 2, 32, 512, 256, 1024, 0, 1e-5, 1e4, 0},

    {"gpt2", "gpt2-124m gpt2-small", MODEL_GPT2,
        12, 768, 12, 12, 64, 3072, 50257, 1024, TIED, 1e-5, 0, 0},
    {"gpt2-medium", "gpt2-350m gpt2-355m", MODEL_GPT2,
        24, 1024, 16, 16, 64, 4096, 50257, 1024, TIED, 1e-5, 0, 0},
    {"gpt2-large", "gpt2-774m", MODEL_GPT2,
        36, 1280, 20, 20, 64, 5120, 50257, 1024, TIED, 1e-5, 0, 0},
    {"gpt2-xl", "gpt2-1.5b gpt2-1558m", MODEL_GPT2,
        48, 1600, 25, 25, 64, 6400, 50257, 1024, TIED, 1e-5, 0, 0},

    {"smollm2-135m", "", MODEL_LLAMA,
        30, 576, 9, 3, 64, 1536, 49152, 8192, TIED, 1e-5, 1e5, 0},
    {"smollm2-360m", "", MODEL_LLAMA,
        32, 960, 15, 5, 64, 2560, 49152, 8192, TIED, 1e-5, 1e5, 0},
    {"smollm2-1.7b", "", MODEL_LLAMA,
        24, 2048, 32, 32, 64, 8192, 49152, 8192, TIED, 1e-5, 1.3e5, 0},

    {"tinyllama-1.1b", "tinyllama", MODEL_LLAMA,
        22, 2048, 32, 4, 64, 5632, 32000, 2048, 0, 1e-5, 1e4, 0},
    {"llama-2-7b", "llama2-7b", MODEL_LLAMA,
        32, 4096, 32, 32, 128, 11008, 32000, 4096, 0, 1e-5, 1e4, 0},
    {"llama-2-13b", "llama2-13b", MODEL_LLAMA,
        40, 5120, 40, 40, 128, 13824, 32000, 4096, 0, 1e-5, 1e4, 0},
    {"llama-2-70b", "llama2-70b", MODEL_LLAMA,
        80, 8192, 64, 8, 128, 28672, 32000, 4096, 0, 1e-5, 1e4, 0},
    {"llama-3-8b", "llama3-8b", MODEL_LLAMA,
        32, 4096, 32, 8, 128, 14336, 128256, 8192, 0, 1e-5, 5e5, 0},
    {"llama-3-70b", "llama3-70b", MODEL_LLAMA,
        80, 8192, 64, 8, 128, 28672, 128256, 8192, 0, 1e-5, 5e5, 0},
    {"llama-3.1-8b", "llama3.1-8b", MODEL_LLAMA,
        32, 4096, 32, 8, 128, 14336, 128256, 131072, 0, 1e-5, 5e5, 8},
    {"llama-3.1-70b", "llama3.1-70b", MODEL_LLAMA,
        80, 8192, 64, 8, 128, 28672, 128256, 131072, 0, 1e-5, 5e5, 8},
    {"llama-3.1-405b", "llama3.1-405b", MODEL_LLAMA,
        126, 16384, 128, 8, 128, 53248, 128256, 131072, 0, 1e-5, 5e5, 8},
    {"llama-3.2-1b", "llama3.2-1b", MODEL_LLAMA,
        16, 2048, 32, 8, 64, 8192, 128256, 131072, TIED, 1e-5, 5e5, 32},
    {"llama-3.2-3b", "llama3.2-3b", MODEL_LLAMA,
        28, 3072, 24, 8, 128, 8192, 128256, 131072, TIED, 1e-5, 5e5, 32},

    /* v0.1 attends over a window of 4,096: a longer sequence would be another model */
    {"mistral-7b", "mistral-7b-v0.3", MODEL_LLAMA,
        32, 4096, 32, 8, 128, 14336, 32768, 32768, 0, 1e-5, 1e6, 0},
    {"mistral-7b-v0.1", "", MODEL_LLAMA,
        32, 4096, 32, 8, 128, 14336, 32000, 4096, 0, 1e-5, 1e4, 0},

    {"mixtral-8x7b", "mixtral-8x7b-v0.1 mixtral", MODEL_LLAMA,
        32, 4096, 32, 8, 128, 14336, 32000, 32768, 0, 1e-5, 1e6, 0},
    {"mixtral-8x22b", "mixtral-8x22b-v0.1", MODEL_LLAMA,
        56, 6144, 48, 8, 128, 16384, 32768, 65536, 0, 1e-5, 1e6, 0},

    {"qwen2.5-0.5b", "qwen-2.5-0.5b", MODEL_LLAMA,
        24, 896, 14, 2, 64, 4864, 151936, 32768, TIED | QKV_BIAS, 1e-6, 1e6, 0},
    {"qwen2.5-1.5b", "qwen-2.5-1.5b", MODEL_LLAMA,
        28, 1536, 12, 2, 128, 8960, 151936, 131072, TIED | QKV_BIAS, 1e-6, 1e6, 0},
    {"qwen2.5-3b", "qwen-2.5-3b", MODEL_LLAMA,
        36, 2048, 16, 2, 128, 11008, 151936, 32768, TIED | QKV_BIAS, 1e-6, 1e6, 0},
    {"qwen2.5-7b", "qwen-2.5-7b", MODEL_LLAMA,
        28, 3584, 28, 4, 128, 18944, 152064, 131072, QKV_BIAS, 1e-6, 1e6, 0},
    {"qwen2.5-14b", "qwen-2.5-14b", MODEL_LLAMA,
        48, 5120, 40, 8, 128, 13824, 152064, 131072, QKV_BIAS, 1e-5, 1e6, 0},
    {"qwen2.5-32b", "qwen-2.5-32b", MODEL_LLAMA,
        64, 5120, 40, 8, 128, 27648, 152064, 131072, QKV_BIAS, 1e-5, 1e6, 0},
    {"qwen2.5-72b", "qwen-2.5-72b", MODEL_LLAMA,
        80, 8192, 64, 8, 128, 29568, 152064, 131072, QKV_BIAS, 1e-5, 1e6, 0},

    {"qwen3-0.6b", "qwen-3-0.6b", MODEL_LLAMA,
        28, 1024, 16, 8, 128, 3072, 151936, 40960, TIED | QK_NORM, 1e-6, 1e6, 0},
    {"qwen3-1.7b", "qwen-3-1.7b", MODEL_LLAMA,
        28, 2048, 16, 8, 128, 6144, 151936, 40960, TIED | QK_NORM, 1e-6, 1e6, 0},
    {"qwen3-4b", "qwen-3-4b", MODEL_LLAMA,
        36, 2560, 32, 8, 128, 9728, 151936, 40960, TIED | QK_NORM, 1e-6, 1e6, 0},
    {"qwen3-8b", "qwen-3-8b", MODEL_LLAMA,
        36, 4096, 32, 8, 128, 12288, 151936, 40960, QK_NORM, 1e-6, 1e6, 0},
    {"qwen3-14b", "qwen-3-14b", MODEL_LLAMA,
        40, 5120, 40, 8, 128, 17408, 151936, 40960, QK_NORM, 1e-6, 1e6, 0},
    {"qwen3-30b-a3b", "qwen-3-30b-a3b", MODEL_LLAMA,
        48, 2048, 32, 4, 128, 768, 151936, 40960, QK_NORM, 1e-6, 1e6, 0},
    {"qwen3-235b-a22b", "qwen-3-235b-a22b", MODEL_LLAMA,
        94, 4096, 64, 4, 128, 1536, 151936, 40960, QK_NORM, 1e-6, 1e6, 0},
    {"qwen3-32b", "qwen-3-32b", MODEL_LLAMA,
        64, 5120, 64, 8, 128, 25600, 151936, 40960, QK_NORM, 1e-6, 1e6, 0},
};
/* clang-format on */

/* Of presets whose ffn is that of one expert. */
static const struct {
    const char *preset;
    int experts, top;
} mixtures[] = {{"mixtral-8x7b", 8, 2}, {"mixtral-8x22b", 8, 2}, {"qwen3-30b-a3b", 128, 8},
    {"qwen3-235b-a22b", 128, 8}};

const char *model_preset_name(int i)
{
    return i >= 0 && (size_t)i < BASE_COUNT(presets) ? presets[i].name : NULL;
}

static struct model model_of(const struct preset *p)
{
    struct model m = {
        .family = p->family,
        .layers = p->layers,
        .width = p->width,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .head_dim = p->head_dim,
        .ffn = p->ffn,
        .vocab = p->vocab,
        .max_positions = p->max_positions,
        .is_tied = p->flags & TIED,
        .has_qkv_bias = p->flags & QKV_BIAS,
        .has_qk_norm = p->flags & QK_NORM,
        .norm_eps = p->norm_eps,
        .rope_theta = p->rope_theta,
    };
    str_copy(m.name, sizeof m.name, p->name);
    if (p->llama3_factor > 0) {
        m.rope = ROPE_LLAMA3;
        m.rope_factor = p->llama3_factor;
        m.rope_low_freq = 1;
        m.rope_high_freq = 4;
        m.rope_original_positions = 8192;
    }
    for (size_t i = 0; i < BASE_COUNT(mixtures); i++) {
        struct mixture x = {.count = mixtures[i].experts, .top = mixtures[i].top, .width = p->ffn};
        if (strcmp(mixtures[i].preset, p->name) == 0)
            model_set_experts(&m, &x, NULL);
    }
    return m;
}

/* Next word of a list separated by single spaces, cut to MODEL_NAME; NULL at the end. */
static const char *next_alias(const char *list, char word[MODEL_NAME])
{
    if (*list == '\0')
        return NULL;
    size_t n = strcspn(list, " ");
    size_t kept = n < MODEL_NAME - 1 ? n : MODEL_NAME - 1;
    memcpy(word, list, kept);
    word[kept] = '\0';
    return list + n + (list[n] == ' ');
}

static bool has_name(const struct preset *p, const char *name)
{
    char word[MODEL_NAME];
    if (strcasecmp(p->name, name) == 0)
        return true;
    for (const char *at = p->aliases; (at = next_alias(at, word)) != NULL;)
        if (strcasecmp(word, name) == 0)
            return true;
    return false;
}

bool model_preset_find(struct model *out, const char *name)
{
    for (size_t i = 0; i < BASE_COUNT(presets); i++) {
        if (has_name(&presets[i], name)) {
            *out = model_of(&presets[i]);
            return true;
        }
    }
    return false;
}

static void keep_nearer(const char *typed, const char *candidate, int *best, char buf[MODEL_NAME])
{
    int distance = str_distance(typed, candidate);
    if (distance < *best) {
        *best = distance;
        str_copy(buf, MODEL_NAME, candidate);
    }
}

const char *model_preset_nearest(const char *name, char buf[MODEL_NAME])
{
    char typed[MODEL_NAME], word[MODEL_NAME];
    if (!str_copy(typed, sizeof typed, name))
        return NULL;
    for (char *p = typed; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p += 'a' - 'A';
    int best = (int)strlen(typed) / 2 + 1;
    buf[0] = '\0';
    for (size_t i = 0; i < BASE_COUNT(presets); i++) {
        keep_nearer(typed, presets[i].name, &best, buf);
        for (const char *at = presets[i].aliases; (at = next_alias(at, word)) != NULL;)
            keep_nearer(typed, word, &best, buf);
    }
    return buf[0] ? buf : NULL;
}
