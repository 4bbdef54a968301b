#include "engine/token_file.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static char bin[64], idx[64];

static void remove_files(void)
{
    unlink(bin);
    unlink(idx);
}

static void name_files(void)
{
    if (bin[0])
        return;
    snprintf(bin, sizeof(bin), "/tmp/berth-fuzz-%d.bin", (int)getpid());
    snprintf(idx, sizeof(idx), "/tmp/berth-fuzz-%d.idx", (int)getpid());
    atexit(remove_files);
}

static void write_file(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, len, f) != len)
        abort();
    fclose(f);
}

/* Everything that a file says of itself can be asked for. */
static void use(const struct token_file *f)
{
    const struct token_file_info *info = token_file_info(f);
    struct err e = ERR_INIT;
    int32_t id;
    for (int64_t i = 0; i < info->tokens; i += info->tokens / 7 + 1) {
        token_file_counts(f, i);
        if (token_file_read(f, i, 1, 1000, &id, &e) == RC_OK && token_file_at(f, i) != id)
            abort();
    }
    for (int64_t i = 0; i < info->documents; i += info->documents / 7 + 1)
        token_file_document_end(f, i);
    if (token_file_check_index(f, &e) && !e.msg[0])
        abort();
}

/* The first byte is the kind; what follows is the file or, of Megatron's two, the index. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const uint16_t tokens[13] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    struct err e = ERR_INIT;
    struct token_file *f;
    if (len < 2)
        return 0;
    enum data_kind kind = (enum data_kind)(data[0] % DATA_KINDS);
    bool has_index = kind == DATA_MEGATRON;
    if (kind == DATA_TEXT)
        return 0;
    name_files();
    remove_files();
    write_file(has_index ? idx : bin, data + 1, len - 1);
    if (has_index)
        write_file(bin, tokens, sizeof(tokens));
    if (token_file_open(&f, bin, kind, &e) == RC_OK) {
        use(f);
        token_file_close(f);
    } else if (!e.msg[0]) {
        abort();
    }
    return 0;
}
