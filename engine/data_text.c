#include "engine/data_text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "engine/tokenize.h"
#include "planner/data_source.h"

/* Another text, tokenizer or field, or a later version of a file, has another name. */
static enum rc name_of(char **out, const struct data_source *s, const char *dir, struct err *e)
{
    struct stat st;
    char tokenizer[HASH128_HEX], name[HASH128_HEX];
    if (stat(s->path, &st) != 0)
        return err_sys(e, RC_NOT_FOUND, "cannot open data file '%s'", s->path);
    enum rc rc = hash128_file(s->tokenizer, tokenizer, e);
    if (rc)
        return rc;
    struct str key = STR_INIT;
    str_addf(&key, "1 %s %s %lld %lld.%09ld", tokenizer, s->path, (long long)st.st_size,
        (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    if (s->field || s->prompt)
        str_addf(&key, " %s %s", s->field ? s->field : "text", s->prompt ? s->prompt : "");
    hash128_hex(hash128(str_text(&key), key.len), name);
    str_release(&key);
    *out = base_printf("%s/tokens-%s.tok", dir, name);
    return RC_OK;
}

static enum rc make(const char *path, const struct data_source *s, int threads, struct err *e)
{
    const char *inputs[] = {s->path};
    struct tokenize_result result;
    struct tokenize_options o = {.inputs = inputs,
        .n_inputs = 1,
        .tokenizer = s->tokenizer,
        .field = s->field,
        .prompt = s->prompt,
        .output = path,
        .kind = DATA_BERTH,
        .threads = threads};
    return tokenize_run(&o, &result, e);
}

static enum rc make_locked(
    const char *path, const struct data_source *s, int threads, struct err *e)
{
    char *lock = base_printf("%s.lock", path);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    enum rc rc = RC_OK;
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        rc = err_sys(e, RC_IO, "cannot lock '%s'", lock);
    else if (!file_exists(path))
        rc = make(path, s, threads, e);
    if (fd >= 0)
        close(fd);
    free(lock);
    return rc;
}

enum rc data_text_tokens(
    char **path, const struct data_source *s, const char *dir, int threads, struct err *e)
{
    *path = NULL;
    enum rc rc = dir_make(dir, 0700, e);
    if (!rc)
        rc = name_of(path, s, dir, e);
    if (!rc && !file_exists(*path))
        rc = make_locked(*path, s, threads, e);
    if (rc) {
        free(*path);
        *path = NULL;
    }
    return rc;
}
