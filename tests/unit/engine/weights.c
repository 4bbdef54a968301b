/* safetensors files and whole checkpoints of Hugging Face's that lie: each gives one sentence that
 * names file and tensor. What is right is read at any strategy and world size by golden.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/hf_layout.h"
#include "engine/init.h"
#include "engine/safetensors.h"
#include "engine/weights.h"
#include "lib_ranks.h"
#include "lib_scratch.h"

static char *in_root(const char *name)
{
    return path_join(scratch, name);
}

static void write_file(const char *name, const void *data, size_t n)
{
    struct err e = ERR_INIT;
    char *path = in_root(name);
    ranks_check(file_write(path, data, n, 0644, &e), &e);
    free(path);
}

static void fresh_root(void)
{
    struct err e = ERR_INIT;
    ranks_check(dir_remove(scratch, &e), &e);
    ranks_check(dir_make(scratch, 0755, &e), &e);
}

/* --- one file --- */

/* A file of this header and so many bytes behind it. claimed: header length, -1 for the right one.
 */
static void write_raw(const char *name, const char *header, int64_t claimed, size_t data_bytes)
{
    size_t n = strlen(header);
    uint64_t len = claimed < 0 ? n : (uint64_t)claimed;
    unsigned char *file = base_calloc(1, 8 + n + data_bytes);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(len >> (8 * i));
    memcpy(file + 8, header, n);
    write_file(name, file, 8 + n + data_bytes);
    free(file);
}

#define ENTRY(name, shape, begin, end)                                                             \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void headers_that_lie_are_refused_by_file_and_tensor(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t claimed;
        size_t data_bytes;
        const char *word; /* NULL: sound */
    } cases[] = {
        {"{" ENTRY("a", "[2]", "0", "8") "}", -1, 8, NULL},
        {"{" ENTRY("a", "[0]", "0", "0") "," ENTRY("b", "[]", "0", "4") "}", -1, 4, NULL},
        {"{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("a", "[2]", "0", "8") "}   ", -1, 8, NULL},
        {"{" ENTRY("a", "[2]", "0", "8") "}", 1 << 30, 8, "claims a header of 1073741824 bytes"},
        {"{" ENTRY("a", "[2]", "0", "8") "}", INT64_MAX, 8, "claims a header of"},
        {"{" ENTRY("a", "[2]", "0", "8") "}", 3, 8, "header of"},
        {" {" ENTRY("a", "[2]", "0", "8") "}", -1, 8, "does not begin with '{'"},
        {"[]", -1, 0, "does not begin with '{'"},
        {"", -1, 0, "does not begin with '{'"},
        {"{" ENTRY("a", "[2]", "0", "8") "}", -1, 7, "describes 8 data bytes, the file has 7"},
        {"{" ENTRY("a", "[2]", "0", "8") "}", -1, 9, "describes 8 data bytes, the file has 9"},
        {"{" ENTRY("a", "[2]", "0", "8") "," ENTRY("b", "[1]", "4", "8") "}", -1, 8,
            "a hole or an overlap before 'b'"},
        {"{" ENTRY("a", "[2]", "0", "8") "," ENTRY("b", "[1]", "12", "16") "}", -1, 16,
            "a hole or an overlap before 'b'"},
        {"{" ENTRY("a", "[2]", "4", "12") "}", -1, 12, "a hole or an overlap before 'a'"},
        {"{" ENTRY("a", "[3]", "0", "8") "}", -1, 8, "shape and offsets disagree for 'a'"},
        {"{" ENTRY("a", "[2]", "8", "0") "}", -1, 8, "shape and offsets disagree for 'a'"},
        {"{" ENTRY("a", "[-1]", "0", "4") "}", -1, 4, "absurd shape of 'a'"},
        {"{" ENTRY("a", "[4294967296,4294967296]", "0", "4") "}", -1, 4, "absurd shape of 'a'"},
        {"{" ENTRY("a", "[4611686018427387905]", "0", "4") "}", -1, 4,
            "shape and offsets disagree for 'a'"},
        {"{" ENTRY("a", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", -1, 4, "no shape or offsets for 'a'"},
        {"{" ENTRY("a", "[1.5]", "0", "4") "}", -1, 4, "absurd shape of 'a'"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", -1, 1,
            "unknown type of 'a'"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", -1, 8, "unknown type of 'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", -1, 8, "no shape or offsets for 'a'"},
        {"{\"a\":7}", -1, 0, "unknown type of 'a'"},
        {"{" ENTRY("a", "[1]", "0", "4") "," ENTRY("a", "[1]", "0", "4") "}", -1, 4, "duplicate"},
        {"{\"__metadata__\":{\"n\":1}}", -1, 0, "no text in '__metadata__' for 'n'"},
        {"{\"__metadata__\":1}", -1, 0, "'__metadata__' is not an object"},
    };
    fresh_root();
    char *path = in_root("f.safetensors");
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        struct st_reader *r;
        write_raw("f.safetensors", cases[i].header, cases[i].claimed, cases[i].data_bytes);
        enum rc rc = st_open(&r, path, &e);
        if (rc != (cases[i].word ? RC_INVALID : RC_OK))
            fail_msg("case %zu: %d, %s", i, rc, e.msg);
        if (rc && (!strstr(e.msg, cases[i].word) || !strstr(e.msg, "f.safetensors")))
            fail_msg("case %zu: '%s' lacks '%s' or the file", i, e.msg, cases[i].word);
        st_close(rc ? NULL : r);
    }
    free(path);
}

/* --- a whole checkpoint --- */

struct entry {
    char name[HF_NAME + 40];
    char dtype[12];
    int dims;
    int64_t shape[3];
    float fill; /* of all elements */
};

/* The tensors a sound checkpoint of the model has; element values count up over all of them. */
static size_t sound_entries(const struct model *m, struct entry *out)
{
    size_t n = 0;
    for (int unit = 0; unit < model_units(m); unit++) {
        struct hf_tensor list[MODEL_MAX_TENSORS];
        int k = hf_unit_tensors(m, unit, list);
        for (int i = 0; i < k; i++, n++) {
            out[n] = (struct entry){.dtype = "F32", .dims = list[i].dims, .fill = 0.5F};
            str_copy(out[n].name, sizeof(out[n].name), list[i].name);
            memcpy(out[n].shape, list[i].shape, sizeof(list[i].shape));
        }
    }
    return n;
}

static void write_entries(const char *name, const struct entry *list, size_t n)
{
    struct err e = ERR_INIT;
    struct st_writer *w;
    uint64_t bytes;
    struct hash128 hash;
    struct st_tensor *t = base_calloc(n + 1, sizeof(*t));
    for (size_t i = 0; i < n; i++) {
        t[i] = (struct st_tensor){.name = (char *)(uintptr_t)list[i].name, .dims = list[i].dims};
        memcpy(t[i].dtype, list[i].dtype, sizeof(t[i].dtype));
        memcpy(t[i].shape, list[i].shape, sizeof(list[i].shape));
    }
    char *path = in_root(name);
    ranks_check(st_create(&w, path, t, n, &e), &e);
    for (size_t i = 0; i < n; i++) {
        size_t size = (size_t)st_dtype_bytes(list[i].dtype);
        for (uint64_t at = t[i].begin; at < t[i].end; at += size) {
            char value[8] = {0};
            uint16_t half = 0x3f00; /* 0.5 in bf16 */
            if (size == 4)
                memcpy(value, &list[i].fill, 4);
            else
                memcpy(value, &half, 2);
            ranks_check(st_write(w, value, size, &e), &e);
        }
    }
    ranks_check(st_finish(w, &bytes, &hash, &e), &e);
    free(path);
    free(t);
}

static struct model tiny(const char *name)
{
    struct err e = ERR_INIT;
    struct model m;
    ranks_check(model_find(&m, name, &e), &e);
    m.width = m.family == MODEL_GPT2 ? m.heads * m.head_dim : 8;
    m.ffn = 12;
    m.vocab = 10;
    m.layers = 1;
    return m;
}

static struct entry *entry_named(struct entry *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Reads every tensor as a run would. */
static enum rc read_all(const char *path, const struct model *m, struct err *e)
{
    struct weights *w;
    enum rc rc = weights_open(&w, path, m, e);
    for (int unit = 0; unit < model_units(m) && !rc; unit++) {
        struct unit_layout u;
        model_unit_layout(m, unit, 1, &u);
        for (int i = 0; i < u.n && !rc; i++) {
            int64_t elems = u.tensor[i].rows * u.tensor[i].cols;
            float *data = base_alloc((size_t)elems * sizeof(*data));
            rc = weights_read(w, unit, u.tensor[i].role, 0, elems, data, e);
            for (int64_t j = 0; j < elems && !rc; j++)
                assert_float_equal(data[j], 0.5, 0);
            free(data);
        }
    }
    weights_close(w);
    return rc;
}

enum change {
    NOTHING,
    DROP,
    NARROW,
    ONE_DIM_MORE,
    INTEGERS,
    BF16,
    NOT_FINITE,
    RENAME,
    ADD,
    ADD_OTHER
};

static size_t apply(enum change c, struct entry *list, size_t n, const char *name, const char *to)
{
    struct entry *t =
        c == NOTHING || c == ADD || c == ADD_OTHER ? NULL : entry_named(list, n, name);
    switch (c) {
    case NOTHING:
        return n;
    case DROP:
        memmove(t, t + 1, (size_t)(list + n - t - 1) * sizeof(*t));
        return n - 1;
    case NARROW:
        t->shape[0]--;
        return n;
    case ONE_DIM_MORE:
        t->shape[t->dims++] = 1;
        return n;
    case INTEGERS:
    case BF16:
        snprintf(t->dtype, sizeof(t->dtype), "%s", c == BF16 ? "BF16" : "I32");
        return n;
    case NOT_FINITE:
        t->fill = NAN;
        return n;
    case RENAME:
        snprintf(t->name, sizeof(t->name), "%s", to);
        return n;
    case ADD:
    case ADD_OTHER:
        list[n] = *entry_named(list, n, name);
        snprintf(list[n].name, sizeof(list[n].name), "%s", to);
        list[n].fill = c == ADD ? 0.5F : 0.25F;
        return n + 1;
    }
    return n;
}

#define LAYER "model.layers.0."
#define EMBED "model.embed_tokens.weight"

static void checkpoints_that_do_not_fit_the_model_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        enum change change;
        const char *name, *to, *word; /* word NULL: taken */
    } cases[] = {
        {"tiny-llama", NOTHING, NULL, NULL, NULL},
        {"tiny-qwen3", NOTHING, NULL, NULL, NULL},
        {"tiny-gpt2", NOTHING, NULL, NULL, NULL},
        {"tiny-llama", BF16, LAYER "self_attn.q_proj.weight", NULL, NULL},
        {"tiny-gpt2", BF16, "transformer.h.0.attn.c_attn.weight", NULL, NULL},
        {"tiny-llama", DROP, LAYER "mlp.up_proj.weight", NULL,
            "lacks 'model.layers.0.mlp.up_proj.weight'"},
        {"tiny-llama", DROP, "lm_head.weight", NULL, "lacks 'lm_head.weight'"},
        {"tiny-llama", NARROW, EMBED, NULL,
            "shape [9, 8], the plan's model 'tiny-llama' has [10, 8]"},
        {"tiny-llama", ONE_DIM_MORE, LAYER "input_layernorm.weight", NULL, "with shape [8, 1]"},
        {"tiny-llama", INTEGERS, "model.norm.weight", NULL, "keeps 'model.norm.weight' as I32"},
        {"tiny-llama", NOT_FINITE, "model.norm.weight", NULL,
            "element 0 of 'model.norm.weight' is not finite"},
        {"tiny-llama", RENAME, EMBED, "embed_tokens.weight", NULL}, /* of the bare model */
        {"tiny-gpt2", RENAME, "transformer.wte.weight", "wte.weight", NULL},
        {"tiny-llama", ADD, EMBED, "embed_tokens.weight", "under two names"},
        {"tiny-llama", ADD, LAYER "input_layernorm.weight", LAYER "self_attn.q_norm.weight",
            "holds 'model.layers.0.self_attn.q_norm.weight', which model 'tiny-llama' does not "
            "have"},
        {"tiny-llama", ADD, LAYER "input_layernorm.weight", LAYER "self_attn.rotary_emb.inv_freq",
            NULL},
        {"tiny-gpt2", ADD, "transformer.wpe.weight", "transformer.h.0.attn.bias", NULL},
        {"tiny-qwen3", ADD, EMBED, "lm_head.weight", NULL}, /* tied, and stored all the same */
        {"tiny-qwen3", ADD_OTHER, EMBED, "lm_head.weight", "although model 'tiny-qwen3' ties them"},
        {"tiny-gpt2", ADD, "transformer.wte.weight", "lm_head.weight", NULL},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        struct model m = tiny(cases[i].model);
        struct entry list[32];
        fresh_root();
        size_t n =
            apply(cases[i].change, list, sound_entries(&m, list), cases[i].name, cases[i].to);
        write_entries("model.safetensors", list, n);
        enum rc rc = read_all(scratch, &m, &e);
        if (rc != (cases[i].word ? RC_INVALID : RC_OK))
            fail_msg("case %zu: %d, %s", i, rc, e.msg);
        if (rc && (!strstr(e.msg, cases[i].word) || !strstr(e.msg, "model.safetensors")))
            fail_msg("case %zu: '%s' lacks '%s' or the file", i, e.msg, cases[i].word);
    }
}

static void half_precision_is_widened_exactly(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m = tiny("tiny-llama");
    struct entry list[32];
    fresh_root();
    size_t n = sound_entries(&m, list);
    snprintf(entry_named(list, n, "model.norm.weight")->dtype, 12, "F16");
    write_entries("model.safetensors", list, n);
    struct weights *w;
    char *path = in_root("model.safetensors");
    struct str text = STR_INIT;
    ranks_check(file_read(&text, path, 1 << 20, &e), &e);
    struct st_reader *r;
    ranks_check(st_open(&r, path, &e), &e);
    const struct st_tensor *t = st_find(r, "model.norm.weight");
    /* data start behind the header: its length is in the first 8 bytes */
    size_t at =
        8 + (size_t)(unsigned char)text.p[0] + ((size_t)(unsigned char)text.p[1] << 8) + t->begin;
    static const uint16_t bits[8] = {
        0x0001, 0x03ff, 0x0400, 0x3c00, 0xc000, 0x7bff, 0x8000, 0x8001};
    static const float want[8] = {0x1p-24F, 0x1.ff8p-15F, 0x1p-14F, 1, -2, 65504, -0.0F, -0x1p-24F};
    memcpy(text.p + at, bits, sizeof(bits));
    write_file("model.safetensors", text.p, text.len);
    float got[8];
    ranks_check(weights_open(&w, scratch, &m, &e), &e);
    ranks_check(weights_read(w, model_units(&m) - 1, T_FINAL_NORM_W, 0, 8, got, &e), &e);
    assert_memory_equal(got, want, sizeof(got));
    weights_close(w);
    st_close(r);
    str_release(&text);
    free(path);
}

/* --- several files --- */

/* Two files; the first tensor of the model is placed where `first` says. */
static void write_indexed(const struct model *m, const char *first, const char *more)
{
    struct entry list[32];
    size_t n = sound_entries(m, list), half = n / 2;
    struct str s = STR_INIT;
    fresh_root();
    write_entries("a.safetensors", list, half);
    write_entries("b.safetensors", list + half, n - half);
    str_add(&s, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (size_t i = 0; i < n; i++)
        str_addf(&s, "%s\"%s\":\"%s\"", i ? "," : "", list[i].name,
            i == 0     ? first
            : i < half ? "a.safetensors"
                       : "b.safetensors");
    str_addf(&s, "%s}}", more);
    write_file("model.safetensors.index.json", s.p, s.len);
    str_release(&s);
}

static void an_index_is_held_to_its_files(void **state)
{
    (void)state;
    static const struct {
        const char *first, *more, *word;
    } cases[] = {
        {"a.safetensors", "", NULL},
        {"b.safetensors", "",
            "places 'model.embed_tokens.weight' in 'b.safetensors', which has no"},
        {"../a.safetensors", "",
            "names '../a.safetensors', which is no safetensors file beside it"},
        {"c.safetensors", "", "c.safetensors'"},
        {"a.safetensors", ",\"x\":\"a.safetensors\"", "places 'x' in 'a.safetensors'"},
        {"a.safetensors", ",\"x\":7", "which is no safetensors file beside it"},
    };
    struct model m = tiny("tiny-llama");
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        write_indexed(&m, cases[i].first, cases[i].more);
        enum rc rc = read_all(scratch, &m, &e);
        if (!rc != !cases[i].word)
            fail_msg("case %zu: %d, %s", i, rc, e.msg);
        if (rc && !strstr(e.msg, cases[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, cases[i].word);
    }
    struct err e = ERR_INIT;
    struct entry extra = {.name = "y", .dtype = "F32", .dims = 1, .shape = {1}};
    write_indexed(&m, "a.safetensors", ",\"y\":\"c.safetensors\"");
    write_entries("c.safetensors", &extra, 1);
    assert_int_equal(read_all(scratch, &m, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "holds 'y', which model"));
    write_indexed(&m, "a.safetensors", "");
    char *index = in_root("model.safetensors.index.json");
    assert_int_equal(read_all(index, &m, &e), RC_OK); /* named by itself */
    free(index);
}

static void a_folder_without_weights_says_what_it_looked_for(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m = tiny("tiny-llama");
    fresh_root();
    assert_int_equal(read_all(scratch, &m, &e), RC_NOT_FOUND);
    assert_non_null(strstr(e.msg, "holds neither model.safetensors nor"));
}

/* --- config.json beside them --- */

static void a_config_of_another_model_is_refused_by_field(void **state)
{
    (void)state;
    struct model m = tiny("tiny-llama"), other = m;
    struct entry list[32];
    static const struct {
        const char *field;
        size_t offset;
    } fields[] = {{"norm_eps", offsetof(struct model, norm_eps)},
        {"rope_theta", offsetof(struct model, rope_theta)}};
    for (size_t i = 0; i <= BASE_COUNT(fields); i++) {
        struct err e = ERR_INIT;
        struct json *config;
        fresh_root();
        write_entries("model.safetensors", list, sound_entries(&m, list));
        other = m;
        other.max_positions *= 2; /* may differ */
        if (i < BASE_COUNT(fields))
            *(double *)(void *)((char *)&other + fields[i].offset) *= 2;
        ranks_check(model_to_config(&config, &other, "float32", &e), &e);
        char *text = json_print(config, true);
        write_file("config.json", text, strlen(text));
        enum rc rc = read_all(scratch, &m, &e);
        assert_int_equal(rc, i < BASE_COUNT(fields) ? RC_INVALID : RC_OK);
        if (rc && (!strstr(e.msg, fields[i].field) || !strstr(e.msg, "config.json")))
            fail_msg("'%s' lacks '%s'", e.msg, fields[i].field);
        free(text);
        json_free(config);
    }
}

/* --- a run --- */

static void start_from(struct rank *r)
{
    struct err e = ERR_INIT;
    struct err *out = r->arg;
    enum rc rc = init_from_weights(r->x, scratch, &e);
    assert_int_not_equal(rc, RC_OK);
    if (rc != RC_PEER)
        *out = e;
}

static void ranks_that_need_other_parts_fail_together(void **state)
{
    (void)state;
    struct model m = tiny("tiny-llama");
    struct entry list[32];
    fresh_root();
    size_t n = sound_entries(&m, list);
    entry_named(list, n, "model.norm.weight")->fill = NAN; /* one rank reads it */
    write_entries("model.safetensors", list, n);
    struct strategy s = strategy_default(STRATEGY_ZERO3, 3, 3);
    s.seq = 8;
    s.micro_batch = 1;
    s.grad_accum = 1;
    s.precision = PRECISION_FP32;
    struct rank_options o = {.config = &m, .strategy = s, .threads = 1};
    struct err e = ERR_INIT;
    ranks_run(&o, start_from, &e);
    assert_non_null(strstr(e.msg, "weights: "));
    assert_non_null(strstr(e.msg, "model.norm.weight"));
}

int test_weights(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_lie_are_refused_by_file_and_tensor),
        cmocka_unit_test(checkpoints_that_do_not_fit_the_model_are_refused),
        cmocka_unit_test(half_precision_is_widened_exactly),
        cmocka_unit_test(an_index_is_held_to_its_files),
        cmocka_unit_test(a_folder_without_weights_says_what_it_looked_for),
        cmocka_unit_test(a_config_of_another_model_is_refused_by_field),
        cmocka_unit_test(ranks_that_need_other_parts_fail_together),
    };
    return cmocka_run_group_tests_name("engine/weights", tests, scratch_make, scratch_remove);
}
