#include "launcher/stage.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "launcher/fan.h"
#include "launcher/script.h"

enum { CHECK_TIMEOUT_S = 600, UNDO_TIMEOUT_S = 30, ABANDONED_MIN = 5 };

/* Prints the SHA-256 of "$1" as 64 digits. Told a name with a backslash or a newline in it,
 * sha256sum would put a backslash in front of them; so it is told none. */
static const char HASH_FUNCTION[] =
    "hash() {\n"
    "  [ -f \"$1\" ] || return\n"
    "  if command -v sha256sum >/dev/null 2>&1; then sha256sum <\"$1\" | cut -c1-64\n"
    "  elif command -v shasum >/dev/null 2>&1; then shasum -a 256 <\"$1\" | cut -c1-64\n"
    "  else openssl dgst -sha256 -r <\"$1\" | cut -c1-64; fi\n"
    "}\n";

enum rc stage_find_engine(char **out, struct err *e)
{
    char self[4096];
    const char *libexec = getenv("BERTH_LIBEXEC");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    char *const places[] = {libexec && *libexec ? path_join(libexec, "berth-engine") : NULL,
        path_join(self, "berth-engine"), path_join(self, "../libexec/berth/berth-engine")};
    *out = NULL;
    for (size_t i = 0; i < BASE_COUNT(places); i++) {
        if (!*out && places[i] && access(places[i], X_OK) == 0)
            *out = places[i];
        else
            free(places[i]);
    }
    if (*out)
        return RC_OK;
    return err_set(e, RC_NOT_FOUND, "berth-engine is not beside this program; set BERTH_LIBEXEC");
}

enum rc stage_file_init(struct stage_file *f, const char *local, unsigned mode, struct err *e)
{
    unsigned char bytes[6];
    *f = (struct stage_file){.local = local, .bytes = file_size(local), .mode = mode};
    if (f->bytes < 0)
        return err_set(e, RC_INVALID, "cannot open '%s'", local);
    if (!file_is_regular(local)) /* a device or a pipe may have no end */
        return err_set(e, RC_INVALID, "'%s' is not a plain file", local);
    enum rc rc = hash_random(bytes, sizeof(bytes), e);
    if (rc)
        return rc;
    hash_hex(bytes, sizeof(bytes), f->nonce);
    return err_input(e, hash_sha256_file(local, f->sha256, e));
}

/* Where the file arrives on host i, beside its target: names may be as long as a file system takes,
 * so nothing can be added to them. The caller frees it. */
static char *temp_of(const struct stage_file *f, const char *target, size_t i)
{
    const char *slash = strrchr(target, '/');
    return base_printf("%.*s/.%s-%zu", (int)(slash - target), target, f->nonce, i);
}

/* matches the nonce in the name of a file that is on its way */
#define HEX4 "[0-9a-f][0-9a-f][0-9a-f][0-9a-f]"

struct staging {
    struct fan *fan;
    const struct stage_file *file;
    const char *const *targets;
    char **temps; /* NULL: the host has the file */
    struct put *puts;
    void (*tick)(void *ctx, const struct stage_progress *p);
    void *ctx;
    struct stage_progress progress;
};

/* Which hosts lack the file? Makes the folder on those. What nobody has written to for minutes was
 * left by a launch that was killed. */
static enum rc look(struct staging *s, struct err *e)
{
    struct script *scripts = scripts_new(s->fan->count);
    for (size_t i = 0; i < s->fan->count; i++) {
        struct str *t = &scripts[i].text;
        script_set(t, "target", s->targets[i]);
        script_set(t, "want", s->file->sha256);
        str_add(t, HASH_FUNCTION);
        str_addf(t,
            "umask 077\n"
            "if [ -f \"$target\" ] && [ \"$(hash \"$target\")\" = \"$want\" ]; then\n"
            "  chmod %o \"$target\"; echo have=yes\n"
            "else mkdir -p \"${target%%/*}\"; fi\n"
            "status=$?\n"
            "for left in \"${target%%/*}\"/." HEX4 HEX4 HEX4 "-*; do\n"
            "  [ -f \"$left\" ] && find \"$left\" -mmin +%d -exec rm -f {} \\; 2>/dev/null\n"
            "done\n"
            "exit $status\n",
            s->file->mode, ABANDONED_MIN);
    }
    enum rc rc = scripts_run(s->fan, "looking for staged files", scripts, CHECK_TIMEOUT_S, e);
    for (size_t i = 0; !rc && i < s->fan->count; i++) {
        if (s->fan->v[i].err.code)
            continue; /* out before */
        char *have = script_value(&scripts[i].out, "have");
        if (!have && scripts[i].status != 0)
            rc = err_set(e, RC_NODE, "host '%s': cannot make the folder for '%s'",
                s->fan->v[i].label, s->targets[i]);
        if (!have) {
            s->temps[i] = temp_of(s->file, s->targets[i], i);
            s->progress.total_bytes += s->file->bytes;
        }
        free(have);
    }
    scripts_free(scripts, s->fan->count);
    return rc;
}

static enum progress step_put(void *ctx, size_t i, struct err *e)
{
    struct staging *s = ctx;
    struct transport *t = s->fan->v[i].t;
    if (!s->temps[i])
        return PROGRESS_DONE;
    s->puts[i].local = s->file->local;
    s->puts[i].remote = s->temps[i];
    s->puts[i].mode = s->file->mode;
    int64_t before = s->puts[i].sent_bytes;
    enum progress p = t->ops->put(t, &s->puts[i], e);
    s->progress.sent_bytes += s->puts[i].sent_bytes - before;
    if (s->tick)
        s->tick(s->ctx, &s->progress);
    return p;
}

/* Verify what arrived and give it its name; or take it away again. */
static enum rc settle(struct staging *s, bool is_complete, struct err *e)
{
    struct script *scripts = scripts_new(s->fan->count);
    for (size_t i = 0; i < s->fan->count; i++) {
        struct str *t = &scripts[i].text;
        if (!s->temps[i])
            continue;
        script_set(t, "target", s->targets[i]);
        script_set(t, "temp", s->temps[i]);
        script_set(t, "want", is_complete ? s->file->sha256 : "");
        str_add(t, HASH_FUNCTION);
        str_addf(t,
            "chmod %o \"$temp\" 2>/dev/null\n"
            "if [ \"$(hash \"$temp\" 2>/dev/null)\" = \"$want\" ] && mv -f \"$temp\" \"$target\"; "
            "then\n"
            "  echo good=yes\n"
            "else rm -f \"$temp\"; fi\n",
            s->file->mode);
    }
    enum rc rc = scripts_run(s->fan, "verifying what was sent", scripts, CHECK_TIMEOUT_S, e);
    for (size_t i = 0; is_complete && !rc && i < s->fan->count; i++) {
        char *good = s->temps[i] ? script_value(&scripts[i].out, "good") : base_strdup("");
        if (!good)
            rc = err_set(e, RC_NODE, "host '%s': '%s' did not arrive as it was sent (disk full?)",
                s->fan->v[i].label, s->targets[i]);
        free(good);
    }
    scripts_free(scripts, s->fan->count);
    return rc;
}

enum rc stage_run(struct fan *fan, const struct stage_file *f, const char *const *targets,
    void (*tick)(void *ctx, const struct stage_progress *p), void *ctx, struct err *e)
{
    struct staging s = {.fan = fan, .file = f, .targets = targets, .tick = tick, .ctx = ctx};
    s.temps = base_calloc(fan->count, sizeof(*s.temps));
    s.puts = base_calloc(fan->count, sizeof(*s.puts));
    enum rc rc = look(&s, e);
    if (!rc && s.progress.total_bytes) {
        rc = fan_run(fan, "sending files", step_put, &s, 0, e);
        struct err ignored = ERR_INIT;
        enum rc settled = settle(&s, !rc, rc ? &ignored : e);
        rc = rc ? rc : settled;
    }
    for (size_t i = 0; i < fan->count; i++)
        free(s.temps[i]);
    free(s.temps);
    free(s.puts);
    return rc;
}

void stage_undo(struct fan *fan, const struct stage_file *f, const char *const *targets)
{
    struct script *scripts = scripts_new(fan->count);
    struct err ignored = ERR_INIT;
    for (size_t i = 0; i < fan->count; i++) {
        char *temp = temp_of(f, targets[i], i);
        script_set(&scripts[i].text, "temp", temp);
        str_add(&scripts[i].text, "rm -f \"$temp\"\n");
        free(temp);
    }
    scripts_run(fan, "removing what was half sent", scripts, UNDO_TIMEOUT_S, &ignored);
    scripts_free(scripts, fan->count);
}
