/* Text to tokens on one core, against the `tokenizers` package on the same text with the same
 * tokenizer, in turns. The text is this tree's own documents and sources and the system's licences,
 * cut into documents. Without Python only the own rate is reported. */
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "engine/tokenizer.h"
#include "tests/bench/lib_bench.h"

enum { ROUNDS = 7, TEXT_BYTES = 6 << 20, DOCUMENT_BYTES = 16 << 10 };

#define TEXT      "build/bench-text"
#define TOKENIZER "build/bench-tokenizer.json"
#define FALLBACK  "tests/golden/tokenizers/llama3.json"

/* Documents of whole lines, a NUL between them. */
static void make_text(struct str *out)
{
    static const char *const patterns[] = {"README.md", "docs/*.md", "/usr/share/common-licenses/*",
        "engine/*.[ch]", "planner/*.c", "tests/unit/*/*.c", "cli/*.c"};
    size_t last = 0;
    for (size_t p = 0; p < BASE_COUNT(patterns); p++) {
        glob_t g;
        if (glob(patterns[p], 0, NULL, &g) != 0)
            continue;
        for (size_t i = 0; i < g.gl_pathc && out->len < TEXT_BYTES; i++)
            file_read(out, g.gl_pathv[i], TEXT_BYTES, NULL);
        globfree(&g);
    }
    for (size_t i = 0; i < out->len; i++)
        if (out->p[i] == '\n' && i - last > DOCUMENT_BYTES) {
            out->p[i] = '\0';
            last = i;
        }
}

/* --- rounds --- */

static double own_round(const struct tokenizer *t, const struct str *text, size_t *tokens)
{
    struct tokenizer_work *w = tokenizer_work_new(t);
    struct id_list ids = {0};
    struct err e = ERR_INIT;
    double start = clock_now_s();
    for (size_t at = 0, n; at < text->len; at += n + 1) {
        n = strnlen(text->p + at, text->len - at);
        if (tokenizer_encode(w, text->p + at, n, &ids, &e))
            fprintf(stderr, "%s\n", e.msg);
    }
    double seconds = clock_now_s() - start;
    *tokens = ids.n;
    free(ids.v);
    tokenizer_work_free(w);
    return seconds;
}

static void run(const struct tokenizer *t, struct peer *p, const struct str *text)
{
    double own[ROUNDS], ratio[ROUNDS], bytes = (double)text->len;
    size_t tokens = 0;
    double theirs[2] = {0, 0}; /* seconds, tokens */
    bool has_peer = p->f != NULL;
    for (int r = 0; r < ROUNDS; r++) {
        own[r] = own_round(t, text, &tokens);
        has_peer = peer_round(p, theirs, 2);
        ratio[r] = theirs[0] / own[r];
    }
    double each = median(own, ROUNDS), times = median(ratio, ROUNDS);
    printf("text to tokens, one core: %.1f MB/s (%.1f MB, %zu tokens of %lld)\n",
        bytes / each / 1e6, bytes / 1e6, tokens, (long long)tokenizer_vocab(t));
    if (has_peer)
        printf("against the tokenizers package: %.1f times its rate (%.1f to %.1f)%s\n", times,
            ratio[0], ratio[ROUNDS - 1],
            (size_t)theirs[1] == tokens ? "" : "; the number of tokens DIFFERS");
    else
        printf("against the tokenizers package: not measured (no Python with pip here)\n");
}

int main(void)
{
    struct err e = ERR_INIT;
    struct str text = STR_INIT;
    struct peer p = {0};
    struct tokenizer *t;
    make_text(&text);
    if (file_write(TEXT, text.p, text.len, 0644, &e))
        fprintf(stderr, "%s\n", e.msg);
    static const char *const args[] = {TEXT, TOKENIZER, NULL};
    bool has_peer = peer_open(&p, "tokenizers==0.20.3", "tokenizers_peer.py", args);
    if (tokenizer_open(&t, has_peer ? TOKENIZER : FALLBACK, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    run(t, &p, &text);
    tokenizer_close(t);
    peer_close(&p);
    str_release(&text);
    return 0;
}
