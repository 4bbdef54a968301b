/* Runs a fuzz target without a fuzzer: every file of its corpus, every truncation of it, and a
 * fixed sequence of mutations, so that `make check` covers what `make fuzz` found. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/str.h"

enum { MAX_BYTES = 1 << 20, MUTATIONS = 400 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint64_t state = 0x9E3779B97F4A7C15u;

/* xorshift64: the same sequence on every machine. */
static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* An exact copy on the heap, so that a read past the end is seen by the sanitizer. */
static void run(const char *bytes, size_t len)
{
    uint8_t *copy = base_alloc(len ? len : 1);
    memcpy(copy, bytes, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static void mutate(const char *bytes, size_t len)
{
    static const char TOKENS[] = "\"{}[]:,\n\r\\-+.eE0 9x#<>=!\x1b\xff\x7f\0";
    char *copy = base_alloc(len + 1);
    memcpy(copy, bytes, len);
    for (size_t i = 0, n = 1 + next() % 4; i < n && len; i++) {
        size_t at = next() % len;
        switch (next() % 3) {
        case 0:
            copy[at] = (char)(copy[at] ^ (1 << next() % 8));
            break;
        case 1:
            copy[at] = TOKENS[next() % (sizeof(TOKENS) - 1)];
            break;
        default:
            memmove(copy + at, copy + at + 1, len - at - 1);
            len--;
        }
    }
    run(copy, len);
    free(copy);
}

static size_t run_file(const char *path)
{
    struct str s;
    struct err e = ERR_INIT;
    str_init(&s, MAX_BYTES);
    size_t runs = 0;
    if (file_read(&s, path, MAX_BYTES, &e)) {
        printf("# %s\n", e.msg);
    } else {
        size_t step = s.len > 512 ? s.len / 512 : 1;
        for (size_t n = 0; n <= s.len; n += step, runs++)
            run(str_text(&s), n);
        run(str_text(&s), s.len);
        for (; runs < s.len / step + 2 + MUTATIONS; runs++)
            mutate(str_text(&s), s.len);
    }
    str_release(&s);
    return runs;
}

/* argv[0] is .../fuzz_NAME; its corpus is tests/fuzz/corpus/NAME below the working folder. */
int main(int argc, char **argv)
{
    (void)argc;
    const char *name = strrchr(argv[0], '/');
    name = (name ? name + 1 : argv[0]) + strlen("fuzz_");
    char *folder = path_join("tests/fuzz/corpus", name);
    DIR *d = opendir(folder);
    size_t files = 0, runs = 0;
    for (struct dirent *it; d && (it = readdir(d));) {
        if (it->d_name[0] == '.')
            continue;
        char *path = path_join(folder, it->d_name);
        runs += run_file(path);
        files++;
        free(path);
    }
    if (d)
        closedir(d);
    free(folder);
    printf("%sok 1 - fuzz_%s survives %zu inputs from %zu files\n1..1\n", files ? "" : "not ", name,
        runs, files);
    return files == 0;
}
