/* Text to tokens on one core, against the `tokenizers` package on the same text with the same
 * tokenizer, in turns. The text is this tree's own documents and sources and the system's licences,
 * cut into documents. Without Python only the own rate is reported. */
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "engine/tokenizer.h"

enum { ROUNDS = 7, TEXT_BYTES = 6 << 20, DOCUMENT_BYTES = 16 << 10 };

#define TEXT      "build/bench-text"
#define TOKENIZER "build/bench-tokenizer.json"
#define FALLBACK  "tests/golden/tokenizers/llama3.json"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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

/* --- the peer: a line to it starts a round, a line from it ends one --- */

struct peer {
    FILE *f;
    pid_t pid;
};

static bool hear(struct peer *p, double *seconds, long *tokens)
{
    char line[128];
    if (!fgets(line, sizeof(line), p->f))
        return false;
    return sscanf(line, "%lf %ld", seconds, tokens) == 2 || strncmp(line, "ready", 5) == 0;
}

static bool start_peer(struct peer *p)
{
    char python[512] = "", text[] = TEXT, tokenizer[] = TOKENIZER;
    int pair[2];
    double seconds;
    long tokens;
    FILE *f = popen("tests/bench/peers", "r");
    bool is_there = f && fgets(python, sizeof(python), f);
    if (f)
        pclose(f);
    python[strcspn(python, "\n")] = '\0';
    if (!is_there || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return false;
    p->pid = fork();
    if (p->pid == 0) {
        char script[] = "tests/bench/tokenizers_peer.py";
        char *argv[] = {python, script, text, tokenizer, NULL};
        dup2(pair[1], STDIN_FILENO);
        dup2(pair[1], STDOUT_FILENO);
        close(pair[0]);
        execv(python, argv);
        _exit(127);
    }
    close(pair[1]);
    p->f = fdopen(pair[0], "r+");
    return p->pid > 0 && hear(p, &seconds, &tokens);
}

static void stop_peer(struct peer *p)
{
    if (p->f)
        fclose(p->f);
    if (p->pid > 0)
        waitpid(p->pid, NULL, 0);
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
    long peer_tokens = 0;
    bool has_peer = p->f != NULL;
    for (int r = 0; r < ROUNDS; r++) {
        double theirs = 0;
        own[r] = own_round(t, text, &tokens);
        if (has_peer) {
            fputs("go\n", p->f);
            fflush(p->f);
            has_peer = hear(p, &theirs, &peer_tokens);
        }
        ratio[r] = theirs / own[r];
    }
    qsort(own, ROUNDS, sizeof(*own), by_size);
    qsort(ratio, ROUNDS, sizeof(*ratio), by_size);
    printf("text to tokens, one core: %.1f MB/s (%.1f MB, %zu tokens of %lld)\n",
        bytes / own[ROUNDS / 2] / 1e6, bytes / 1e6, tokens, (long long)tokenizer_vocab(t));
    if (has_peer)
        printf("against the tokenizers package: %.1f times its rate (%.1f to %.1f)%s\n",
            ratio[ROUNDS / 2], ratio[0], ratio[ROUNDS - 1],
            peer_tokens == (long)tokens ? "" : "; the number of tokens DIFFERS");
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
    bool has_peer = start_peer(&p);
    if (tokenizer_open(&t, has_peer ? TOKENIZER : FALLBACK, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    run(t, &p, &text);
    tokenizer_close(t);
    stop_peer(&p);
    str_release(&text);
    return 0;
}
