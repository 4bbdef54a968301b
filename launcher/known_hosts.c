#include "launcher/known_hosts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/base64.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"

enum marker { MARKER_NONE, MARKER_REVOKED, MARKER_CA };

struct entry {
    enum marker marker;
    char *patterns; /* comma list, or |1|salt|hash */
    char type[64];
    unsigned char *blob;
    size_t len;
    const char *path; /* borrowed from known_hosts.paths */
    int line;
};

struct known_hosts {
    struct entry *v;
    size_t count, cap;
    char **paths;
    size_t path_count;
    char *where; /* last answer of known_hosts_check */
};

struct known_hosts *known_hosts_new(void)
{
    return base_calloc(1, sizeof(struct known_hosts));
}

void known_hosts_free(struct known_hosts *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->count; i++) {
        free(k->v[i].patterns);
        free(k->v[i].blob);
    }
    for (size_t i = 0; i < k->path_count; i++)
        free(k->paths[i]);
    free(k->paths);
    free(k->v);
    free(k->where);
    free(k);
}

bool known_hosts_blob_type(const void *blob, size_t len, char *out, size_t cap)
{
    const unsigned char *p = blob;
    if (len < 4)
        return false;
    size_t n = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
    if (n == 0 || n > len - 4 || n >= cap)
        return false;
    memcpy(out, p + 4, n);
    out[n] = '\0';
    return strlen(out) == n;
}

/* --- reading --- */

/* Next word of [*p, end); returns its length, 0 at the end. */
static size_t word(const char **p, const char *end)
{
    while (*p < end && (**p == ' ' || **p == '\t'))
        (*p)++;
    size_t n = 0;
    while (*p + n < end && (*p)[n] != ' ' && (*p)[n] != '\t')
        n++;
    return n;
}

static bool parse_marker(const char **p, const char *end, enum marker *out)
{
    size_t n = word(p, end);
    *out = MARKER_NONE;
    if (n == 0 || **p != '@')
        return true;
    if (n == 8 && memcmp(*p, "@revoked", n) == 0)
        *out = MARKER_REVOKED;
    else if (n == 15 && memcmp(*p, "@cert-authority", n) == 0)
        *out = MARKER_CA;
    else
        return false;
    *p += n;
    return true;
}

static void add_line(struct known_hosts *k, const char *p, const char *end, int line)
{
    struct entry en = {.line = line, .path = k->paths[k->path_count - 1]};
    char named[64];
    while (end > p && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (!parse_marker(&p, end, &en.marker))
        return;
    size_t patterns = word(&p, end);
    const char *patterns_at = p;
    if (patterns == 0 || *p == '#')
        return;
    p += patterns;
    size_t type = word(&p, end);
    if (type == 0 || type >= sizeof(named))
        return;
    memcpy(named, p, type);
    named[type] = '\0';
    p += type;
    size_t key = word(&p, end);
    struct err ignored;
    if (key == 0 || base64_decode(&en.blob, &en.len, p, key, &ignored))
        return;
    if (!known_hosts_blob_type(en.blob, en.len, en.type, sizeof(en.type)) ||
        strcmp(en.type, named) != 0) {
        free(en.blob);
        return;
    }
    en.patterns = base_strndup(patterns_at, patterns);
    BASE_GROW(k->v, k->cap, k->count + 1);
    k->v[k->count++] = en;
}

void known_hosts_add(struct known_hosts *k, const char *path, const char *text, size_t len)
{
    k->paths = base_realloc(k->paths, (k->path_count + 1) * sizeof(*k->paths));
    k->paths[k->path_count++] = base_strdup(path);
    int line = 1;
    for (const char *p = text, *end = text + len; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *stop = nl ? nl : end;
        add_line(k, p, stop, line);
        p = stop + 1;
    }
}

enum rc known_hosts_load(struct known_hosts *k, const char *path, struct err *e)
{
    struct str s;
    if (!file_exists(path))
        return RC_OK;
    str_init(&s, KNOWN_MAX_BYTES);
    enum rc rc = err_input(e, file_read(&s, path, KNOWN_MAX_BYTES, e));
    if (!rc)
        known_hosts_add(k, path, str_text(&s), s.len);
    str_release(&s);
    return rc;
}

/* --- matching --- */

/* '*' and '?' as in OpenSSH; both sides lower case already. */
static bool matches_glob(const char *s, const char *p, const char *p_end)
{
    const char *star = NULL, *resume = NULL;
    while (*s) {
        if (p < p_end && *p == '*') {
            star = ++p;
            resume = s;
        } else if (p < p_end && (*p == '?' || tolower((unsigned char)*p) == *s)) {
            p++;
            s++;
        } else if (star) {
            p = star;
            s = ++resume;
        } else {
            return false;
        }
    }
    while (p < p_end && *p == '*')
        p++;
    return p == p_end;
}

static bool matches_list(const char *list, const char *name)
{
    bool is_match = false;
    for (const char *p = list;;) {
        const char *comma = strchr(p, ',');
        const char *end = comma ? comma : p + strlen(p);
        bool is_negated = *p == '!';
        if (matches_glob(name, p + is_negated, end)) {
            if (is_negated)
                return false; /* wins over every other pattern of the line */
            is_match = true;
        }
        if (!comma)
            return is_match;
        p = comma + 1;
    }
}

/* |1|base64 salt|base64 HMAC-SHA1(salt, name) */
static bool matches_hashed(const char *text, const char *name)
{
    unsigned char *salt = NULL, *want = NULL, got[20];
    size_t salt_len, want_len;
    struct err ignored;
    bool is_match = false;
    const char *bar = strchr(text + 3, '|');
    if (!bar)
        return false;
    if (!base64_decode(&salt, &salt_len, text + 3, (size_t)(bar - text - 3), &ignored) &&
        !base64_decode(&want, &want_len, bar + 1, strlen(bar + 1), &ignored) &&
        want_len == sizeof(got)) {
        hash_hmac_sha1(salt, salt_len, name, strlen(name), got);
        is_match = memcmp(got, want, sizeof(got)) == 0;
    }
    free(salt);
    free(want);
    return is_match;
}

static bool matches(const struct entry *en, const char *name)
{
    return str_starts(en->patterns, "|1|") ? matches_hashed(en->patterns, name)
                                           : matches_list(en->patterns, name);
}

/* Name as known_hosts has it: lower case, [host]:port unless the port is 22. */
static char *entry_name(const char *host, int port)
{
    char *name = port == 22 ? base_strdup(host) : base_printf("[%s]:%d", host, port);
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return name;
}

static enum known_answer check_name(struct known_hosts *k, const char *name, const void *blob,
    size_t len, const struct entry **culprit)
{
    enum known_answer answer = KNOWN_UNKNOWN;
    for (size_t i = 0; i < k->count; i++) {
        const struct entry *en = &k->v[i];
        bool is_same = en->len == len && memcmp(en->blob, blob, len) == 0;
        if (en->marker == MARKER_CA || !matches(en, name))
            continue;
        if (en->marker == MARKER_REVOKED) {
            if (!is_same)
                continue;
            *culprit = en;
            return KNOWN_REVOKED; /* whatever else is said about the key */
        }
        if (is_same) {
            answer = KNOWN_MATCH;
        } else if (answer == KNOWN_UNKNOWN) {
            answer = KNOWN_CHANGED;
            *culprit = en;
        }
    }
    return answer;
}

enum known_answer known_hosts_check(struct known_hosts *k, const char *host, int port,
    const void *blob, size_t len, const char **where)
{
    const struct entry *culprit = NULL;
    char *name = entry_name(host, port);
    enum known_answer answer = check_name(k, name, blob, len, &culprit);
    free(name);
    if (answer == KNOWN_UNKNOWN && port != 22) {
        /* As OpenSSH: a line for the bare host may vouch for the key, but since another server
         * answers on port 22, a different key there says nothing about this one. */
        name = entry_name(host, 22);
        enum known_answer bare = check_name(k, name, blob, len, &culprit);
        free(name);
        if (bare != KNOWN_CHANGED)
            answer = bare;
    }
    if (where && (answer == KNOWN_CHANGED || answer == KNOWN_REVOKED)) {
        free(k->where);
        *where = k->where = base_printf("%s:%d", culprit->path, culprit->line);
    }
    return answer;
}

static bool is_in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

static void add_types(struct known_hosts *k, const char *name, char out[KNOWN_TYPES_TEXT])
{
    for (size_t i = 0; i < k->count; i++) {
        const struct entry *en = &k->v[i];
        size_t used = strlen(out);
        if (en->marker != MARKER_NONE || !matches(en, name) || is_in_list(out, en->type))
            continue;
        if (used + strlen(en->type) + 2 > KNOWN_TYPES_TEXT)
            return;
        if (used)
            out[used++] = ',';
        str_copy(out + used, KNOWN_TYPES_TEXT - used, en->type);
    }
}

void known_hosts_types(
    struct known_hosts *k, const char *host, int port, char out[KNOWN_TYPES_TEXT])
{
    char *name = entry_name(host, port);
    out[0] = '\0';
    add_types(k, name, out);
    free(name);
    if (!out[0] && port != 22) {
        name = entry_name(host, 22);
        add_types(k, name, out);
        free(name);
    }
}

/* --- writing --- */

char *known_hosts_line(const char *host, int port, const void *blob, size_t len)
{
    char type[64];
    if (!known_hosts_blob_type(blob, len, type, sizeof(type)))
        return NULL;
    char *name = entry_name(host, port), *key = base64_encode(blob, len);
    char *line = base_printf("%s %s %s\n", name, type, key);
    free(key);
    free(name);
    return line;
}

void known_hosts_fingerprint(const void *blob, size_t len, char out[KNOWN_FINGERPRINT_TEXT])
{
    unsigned char digest[SHA256_BYTES];
    hash_sha256_bytes(blob, len, digest);
    char *text = base64_encode(digest, sizeof(digest));
    text[strcspn(text, "=")] = '\0';
    snprintf(out, KNOWN_FINGERPRINT_TEXT, "SHA256:%s", text);
    free(text);
}
