/* Tokenizers against the ids of the `tokenizers` package (tests/golden/make_tokenizers.py), and
 * against themselves: what is decoded, where text may be cut, merging in two ways. */
#include "engine/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/bpe.h"
#include "engine/random.h"
#include "engine/splitter.h"
#include "engine/unicode.h"

#define GOLDEN "tests/golden/tokenizers/"

static const char *const STYLES[] = {"gpt2", "gpt2-prefix", "llama3", "qwen2", "smollm2"};

struct cases {
    struct str text;
    const char *at;
};

static void cases_open(struct cases *c)
{
    struct err e = ERR_INIT;
    *c = (struct cases){.text = STR_INIT};
    assert_int_equal(file_read(&c->text, GOLDEN "cases.jsonl", 4 << 20, &e), RC_OK);
    c->at = str_text(&c->text);
}

/* The next case as JSON (freed by the caller) with its bytes; NULL at the end. */
static struct json *cases_next(struct cases *c, struct str *bytes)
{
    struct err e = ERR_INIT;
    struct json *v = NULL;
    size_t n = strcspn(c->at, "\n");
    if (n == 0)
        return NULL;
    assert_int_equal(json_parse(&v, c->at, n, &e), RC_OK);
    c->at += n + 1;
    str_reset(bytes);
    for (const char *hex = json_str(v, "hex", ""); *hex; hex += 2) {
        char pair[3] = {hex[0], hex[1], '\0'};
        str_addc(bytes, (char)strtoul(pair, NULL, 16));
    }
    return v;
}

static struct tokenizer *open_style(const char *name)
{
    struct err e = ERR_INIT;
    struct tokenizer *t;
    char path[128];
    snprintf(path, sizeof(path), GOLDEN "%s.json", name);
    if (tokenizer_open(&t, path, &e))
        fail_msg("%s", e.msg);
    return t;
}

static void check_ids(const char *style, const struct json *v, const struct id_list *got)
{
    const struct json *want = json_get(json_get(v, "ids"), style);
    bool is_equal = got->n == json_len(want);
    for (size_t i = 0; is_equal && i < got->n; i++)
        is_equal = json_as_int(json_at(want, i), -1) == (int64_t)got->v[i];
    if (is_equal)
        return;
    for (size_t i = 0; i < got->n || i < json_len(want); i++)
        fprintf(stderr, "%zu: %lld, want %lld\n", i, i < got->n ? (long long)got->v[i] : -1,
            (long long)json_as_int(json_at(want, i), -1));
    fail_msg("%s: case '%s' differs", style, json_str(v, "name", "?"));
}

static void ids_are_those_of_the_tokenizers_package(void **state)
{
    (void)state;
    for (size_t s = 0; s < BASE_COUNT(STYLES); s++) {
        struct tokenizer *t = open_style(STYLES[s]);
        struct tokenizer_work *w = tokenizer_work_new(t);
        struct str bytes = STR_INIT;
        struct cases c;
        struct json *v;
        cases_open(&c);
        size_t n = 0;
        for (; (v = cases_next(&c, &bytes)); n++) {
            struct err e = ERR_INIT;
            struct id_list ids = {0};
            assert_int_equal(tokenizer_encode(w, str_text(&bytes), bytes.len, &ids, &e), RC_OK);
            check_ids(STYLES[s], v, &ids);
            free(ids.v);
            json_free(v);
        }
        assert_true(n > 150);
        str_release(&c.text);
        str_release(&bytes);
        tokenizer_work_free(w);
        tokenizer_close(t);
    }
}

static void decoding_gives_the_text_back(void **state)
{
    (void)state;
    static const char *const exact[] = {"gpt2", "llama3", "smollm2"};
    for (size_t s = 0; s < BASE_COUNT(exact); s++) {
        struct tokenizer *t = open_style(exact[s]);
        struct tokenizer_work *w = tokenizer_work_new(t);
        struct str bytes = STR_INIT, want = STR_INIT, back = STR_INIT;
        struct cases c;
        struct json *v;
        cases_open(&c);
        while ((v = cases_next(&c, &bytes))) {
            struct err e = ERR_INIT;
            struct id_list ids = {0};
            str_reset(&want);
            str_reset(&back);
            utf8_repair(&want, str_text(&bytes), bytes.len);
            assert_int_equal(tokenizer_encode(w, str_text(&bytes), bytes.len, &ids, &e), RC_OK);
            for (size_t i = 0; i < ids.n; i++)
                tokenizer_decode(t, ids.v[i], &back);
            assert_int_equal(back.len, want.len);
            assert_memory_equal(str_text(&back), str_text(&want), want.len);
            free(ids.v);
            json_free(v);
        }
        str_release(&c.text);
        str_release(&bytes);
        str_release(&want);
        str_release(&back);
        tokenizer_work_free(w);
        tokenizer_close(t);
    }
}

/* All cases in one text, so that every kind of character stands around ends of lines. */
static void all_cases(struct str *out)
{
    struct str bytes = STR_INIT;
    struct cases c;
    struct json *v;
    cases_open(&c);
    while ((v = cases_next(&c, &bytes))) {
        str_addn(out, str_text(&bytes), bytes.len);
        str_addf(out, "%s", bytes.len % 3 ? "\nNext" : "\n");
        json_free(v);
    }
    str_release(&c.text);
    str_release(&bytes);
}

static void cutting_where_it_may_be_cut_gives_the_same_ids(void **state)
{
    (void)state;
    struct str text = STR_INIT;
    all_cases(&text);
    for (size_t s = 0; s < BASE_COUNT(STYLES); s++) {
        struct tokenizer *t = open_style(STYLES[s]);
        struct tokenizer_work *w = tokenizer_work_new(t);
        struct id_list whole = {0}, parts = {0};
        struct err e = ERR_INIT;
        size_t cuts = 0, from = 0;
        assert_int_equal(tokenizer_encode(w, str_text(&text), text.len, &whole, &e), RC_OK);
        for (size_t to; from < text.len; from = to, cuts++) {
            to = from + tokenizer_cut(t, str_text(&text) + from, text.len - from, 1);
            assert_true(to > from && to <= text.len);
            assert_int_equal(
                tokenizer_encode(w, str_text(&text) + from, to - from, &parts, &e), RC_OK);
        }
        assert_true(strcmp(STYLES[s], "gpt2-prefix") == 0 ? cuts == 1 : cuts > 40);
        assert_int_equal(whole.n, parts.n);
        assert_memory_equal(whole.v, parts.v, whole.n * sizeof(*whole.v));
        free(whole.v);
        free(parts.v);
        tokenizer_work_free(w);
        tokenizer_close(t);
    }
    str_release(&text);
}

/* The definition, word by word: look through all pairs for each merge. */
static size_t merge_slowly(const uint32_t (*merges)[3], size_t n_merges, uint32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n, best_rank = n_merges;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t m = 0; m < best_rank; m++)
                if (merges[m][0] == ids[i] && merges[m][1] == ids[i + 1]) {
                    best = i;
                    best_rank = m;
                }
        if (best == n)
            return n;
        ids[best] = merges[best_rank][2];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof(*ids));
        n--;
    }
}

static void words_of_every_length_merge_as_the_definition_says(void **state)
{
    (void)state;
    enum { MERGES = 40, LONGEST = 300 };
    uint32_t merges[MERGES][3], next = 3, ids[LONGEST], want[LONGEST];
    uint64_t key = random_key(11, 0), draw = 0;
    struct bpe *b = bpe_new(MERGES);
    struct bpe_work w = {0};
    for (uint32_t m = 0; m < MERGES; m++) {
        bool is_new = false;
        while (!is_new) {
            merges[m][0] = (uint32_t)(random_bits(key, draw++) % next);
            merges[m][1] = (uint32_t)(random_bits(key, draw++) % next);
            is_new = true;
            for (uint32_t k = 0; k < m; k++)
                is_new &= merges[k][0] != merges[m][0] || merges[k][1] != merges[m][1];
        }
        merges[m][2] = next++;
        bpe_add(b, merges[m][0], merges[m][1], m, merges[m][2]);
    }
    for (size_t n = 1; n <= LONGEST; n++) {
        for (size_t i = 0; i < n; i++)
            ids[i] = want[i] = (uint32_t)(random_bits(key, draw++) % 3);
        size_t expected = merge_slowly((const uint32_t(*)[3])merges, MERGES, want, n);
        assert_int_equal(bpe_merge(b, &w, ids, n), expected);
        assert_memory_equal(ids, want, expected * sizeof(*ids));
    }
    bpe_work_release(&w);
    bpe_free(b);
}

static struct json *tiny(void)
{
    struct err e = ERR_INIT;
    struct json *v = NULL;
    assert_int_equal(json_read(&v, GOLDEN "gpt2.json", 1 << 20, &e), RC_OK);
    return v;
}

static void refuse_with(const char *key, const char *json, const char *word)
{
    struct err e = ERR_INIT;
    struct json *v = tiny(), *part = NULL;
    struct tokenizer *t;
    assert_int_equal(json_parse(&part, json, strlen(json), &e), RC_OK);
    json_add(v, key, part);
    assert_int_equal(tokenizer_from_json(&t, v, &e), RC_INVALID);
    assert_null(t);
    if (!strstr(e.msg, word))
        fail_msg("'%s' does not say '%s'", e.msg, word);
    json_free(v);
}

static void what_would_change_the_ids_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"normalizer", "{\"type\": \"Lowercase\"}", "Lowercase"},
        {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}]}", "NFKC"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\"}", "Metaspace"},
        {"pre_tokenizer", "{\"type\": \"Digits\"}", "ByteLevel"},
        {"pre_tokenizer",
            "{\"type\": \"Split\", \"behavior\": \"MergedWithNext\", \"pattern\": {\"String\": "
            "\"a\"}}",
            "MergedWithNext"},
        {"pre_tokenizer",
            "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": "
            "\"\\\\w+\"}}",
            "\\w"},
        {"pre_tokenizer",
            "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": "
            "\"\\\\p{Han}\"}}",
            "\\p{Han"},
        {"pre_tokenizer",
            "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"(a\"}}",
            "not understood"},
        {"truncation", "{\"max_length\": 5}", "truncation"},
        {"padding", "{\"strategy\": \"BatchLongest\"}", "padding"},
        {"model", "{\"type\": \"Unigram\"}", "Unigram"},
        {"model", "{\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}", "byte"},
        {"model", "{\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}", "'a'"},
        {"added_tokens", "[{\"id\": 9, \"content\": \"<x>\", \"lstrip\": true}]", "lstrip"},
        {"added_tokens", "[{\"id\": 9, \"content\": \"<x>\"}]", "<x>"},
    };
    for (size_t i = 0; i < BASE_COUNT(rows); i++)
        refuse_with(rows[i][0], rows[i][1], rows[i][2]);
}

static void tokens_are_found_by_their_text(void **state)
{
    (void)state;
    struct tokenizer *t = open_style("qwen2");
    assert_int_equal(tokenizer_find(t, "<|endoftext|>"), 0);
    assert_int_equal(tokenizer_end_of_text(t), 0);
    assert_int_equal(tokenizer_find(t, "<tool_call>"), 700);
    assert_int_equal(tokenizer_find(t, "<|never|>"), TOKENIZER_NONE);
    assert_int_equal(tokenizer_vocab(t), 702);
    tokenizer_close(t);
}

int test_tokenizer(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_tokenizers_package),
        cmocka_unit_test(decoding_gives_the_text_back),
        cmocka_unit_test(cutting_where_it_may_be_cut_gives_the_same_ids),
        cmocka_unit_test(words_of_every_length_merge_as_the_definition_says),
        cmocka_unit_test(what_would_change_the_ids_is_refused_by_name),
        cmocka_unit_test(tokens_are_found_by_their_text),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
