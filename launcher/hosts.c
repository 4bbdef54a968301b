#include "launcher/hosts.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "launcher/hostrange.h"

static void host_release(struct host *h)
{
    free(h->name);
    free(h->connect);
    free(h->user);
    free(h->identity);
    free(h->jump);
    free(h->dir);
    free(h->address);
    *h = (struct host){0};
}

void hosts_release(struct hosts *h)
{
    for (size_t i = 0; i < h->count; i++)
        host_release(&h->v[i]);
    free(h->v);
    *h = (struct hosts){0};
}

void hosts_here(struct hosts *out)
{
    *out = (struct hosts){.v = base_calloc(1, sizeof(*out->v)), .count = 1};
    out->v[0] =
        (struct host){.name = base_strdup("here"), .is_local = true, .micro_usd_per_hour = -1};
}

void hosts_cut(struct hosts *h, size_t n)
{
    while (h->count > n)
        host_release(&h->v[--h->count]);
}

static char *dup_or_null(const char *s)
{
    return s ? base_strdup(s) : NULL;
}

static bool is_same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Append a copy of proto under another name; refuses duplicates. */
static enum rc add_host(
    struct hosts *out, const struct host *proto, const char *name, struct err *e)
{
    if (out->count == HOSTS_MAX)
        return err_set(e, RC_LIMIT, "more than %d hosts", HOSTS_MAX);
    for (size_t i = 0; i < out->count; i++) {
        const struct host *o = &out->v[i];
        if (strcmp(o->name, name) != 0 || o->port != proto->port || !is_same(o->user, proto->user))
            continue;
        if (o->line && proto->line)
            return err_set(e, RC_USAGE, "host '%s' is already in line %d", name, o->line);
        return err_set(e, RC_USAGE, "host '%s' is listed twice", name);
    }
    out->v = base_realloc(out->v, (out->count + 1) * sizeof(*out->v));
    struct host *h = &out->v[out->count++];
    *h = *proto;
    h->name = base_strdup(name);
    h->connect = dup_or_null(proto->connect);
    h->user = dup_or_null(proto->user);
    h->identity = dup_or_null(proto->identity);
    h->jump = dup_or_null(proto->jump);
    h->dir = dup_or_null(proto->dir);
    h->address = dup_or_null(proto->address);
    return RC_OK;
}

static bool is_plain_word(const char *s)
{
    if (!*s || *s == '-')
        return false; /* a leading dash could pass for an option of a child program */
    for (; *s; s++)
        /* ASCII only: other bytes would not survive hosts.json, and DNS has none */
        if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f ||
            strchr("\"'`$\\;&|<>(){}*?!,", *s))
            return false;
    return true;
}

enum rc hosts_check_dir(const char *dir, struct err *e)
{
    if (dir[0] != '/' && !str_starts(dir, "~/"))
        return err_set(e, RC_USAGE, "folder '%s' must start with / or ~/", dir);
    for (const char *p = dir; *p; p++) /* a line end would cut it in two where lines are read */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return err_set(e, RC_USAGE, "folder '%s' holds a control character", dir);
    return RC_OK;
}

static enum rc check_fields(const struct host *h, struct err *e)
{
    if (h->user && !is_plain_word(h->user))
        return err_set(e, RC_USAGE, "'%s' is not a user name", h->user);
    if (h->jump && !is_plain_word(h->jump))
        return err_set(e, RC_USAGE, "'%s' is not a jump host", h->jump);
    if (h->connect && !is_plain_word(h->connect))
        return err_set(e, RC_USAGE, "'%s' is not a host name", h->connect);
    if (h->address && !is_plain_word(h->address))
        return err_set(e, RC_USAGE, "'%s' is not an address", h->address);
    return h->dir ? hosts_check_dir(h->dir, e) : RC_OK;
}

static enum rc parse_port(const char *text, int *out, struct err *e)
{
    char *end;
    long port = isdigit((unsigned char)text[0]) ? strtol(text, &end, 10) : 0;
    if (port < 1 || port > 65535 || *end)
        return err_set(e, RC_USAGE, "'%s' is not a port (1 to 65535)", text);
    *out = (int)port;
    return RC_OK;
}

/* Expand the name of proto and add every host; names in exclude are left out. */
static enum rc add_range(struct hosts *out, const struct host *proto, const char *name,
    const struct json *exclude, struct err *e)
{
    char **names = NULL;
    size_t count = 0;
    enum rc rc = hostrange_expand(&names, &count, name, HOSTS_MAX, e);
    for (size_t i = 0; !rc && i < count; i++) {
        bool is_excluded = false;
        for (size_t k = 0; k < json_len(exclude); k++)
            is_excluded |= strcmp(json_as_str(json_at(exclude, k), ""), names[i]) == 0;
        if (is_excluded)
            continue;
        if (!is_plain_word(names[i]))
            rc = err_set(e, RC_USAGE, "'%s' is not a host name", names[i]);
        else
            rc = add_host(out, proto, names[i], e);
    }
    hostrange_free(names, count);
    return rc;
}

/* --- plain lists --- */

/* Cut "[user@]host[:port]" in place. */
static enum rc split_target(char *word, struct host *h, char **name, struct err *e)
{
    char *at = strrchr(word, '@');
    if (at) {
        *at = '\0';
        h->user = base_strdup(word);
        word = at + 1;
    }
    char *port = NULL;
    char *close = strchr(word, ']');
    if (word[0] == '[' && close && memchr(word, ':', (size_t)(close - word))) { /* [::1]:22 */
        *close = '\0';
        *name = word + 1;
        if (close[1] == ':')
            port = close + 2;
        else if (close[1])
            return err_set(e, RC_USAGE, "'%s' behind an IPv6 address is not :PORT", close + 1);
    } else {
        *name = word;
        char *colon = strchr(word, ':');
        if (colon && !strchr(colon + 1, ':')) { /* two colons or more: a bare IPv6 address */
            *colon = '\0';
            port = colon + 1;
        }
    }
    if (!**name)
        return err_set(e, RC_USAGE, "host name is missing");
    return port ? parse_port(port, &h->port, e) : RC_OK;
}

static enum rc parse_slots(const char *text, int64_t *out, struct err *e)
{
    char *end;
    long n = isdigit((unsigned char)text[0]) ? strtol(text, &end, 10) : 0;
    if (n < 1 || n > 1024 || *end)
        return err_set(e, RC_USAGE, "slots '%s' must be 1 to 1024", text);
    *out = n;
    return RC_OK;
}

static enum rc set_key(struct host *h, const char *key, const char *value, struct err *e)
{
    const struct {
        const char *key;
        char **at;
    } texts[] = {{"user", &h->user}, {"identity", &h->identity}, {"jump", &h->jump},
        {"dir", &h->dir}, {"address", &h->address}};
    if (!*value)
        return err_set(e, RC_USAGE, "'%s=' has no value", key);
    for (size_t i = 0; i < BASE_COUNT(texts); i++) {
        if (strcmp(key, texts[i].key) != 0)
            continue;
        free(*texts[i].at);
        *texts[i].at = base_strdup(value);
        return RC_OK;
    }
    if (strcmp(key, "slots") == 0)
        return parse_slots(value, &h->slots, e);
    if (strcmp(key, "port") == 0)
        return parse_port(value, &h->port, e);
    if (strcmp(key, "price") == 0)
        return units_parse_usd(value, &h->micro_usd_per_hour, e);
    return err_set(e, RC_USAGE,
        "key '%s' is unknown; use slots, user, port, identity, jump, dir, address or price", key);
}

static char *next_word(char **rest)
{
    char *p = *rest;
    while (*p == ' ' || *p == '\t')
        p++;
    if (!*p)
        return NULL;
    char *word = p;
    while (*p && *p != ' ' && *p != '\t')
        p++;
    if (*p)
        *p++ = '\0';
    *rest = p;
    return word;
}

static enum rc parse_words(struct hosts *out, char *line, struct host *h, struct err *e)
{
    char *rest = line, *name = NULL, *word = next_word(&rest);
    if (!word)
        return RC_OK;
    enum rc rc = split_target(word, h, &name, e);
    while (!rc && (word = next_word(&rest))) {
        char *eq = strchr(word, '=');
        if (!eq)
            return err_set(e, RC_USAGE, "'%s' is not KEY=VALUE; write one host per line", word);
        *eq = '\0';
        rc = set_key(h, word, eq + 1, e);
    }
    if (!rc)
        rc = check_fields(h, e);
    if (!rc)
        rc = add_range(out, h, name, NULL, e);
    return rc;
}

static enum rc parse_line(
    struct hosts *out, char *line, int number, const char *source, struct err *e)
{
    struct host h = {.line = number, .micro_usd_per_hour = -1};
    char *comment = strchr(line, '#');
    if (comment)
        *comment = '\0';
    size_t n = strlen(line);
    if (n && line[n - 1] == '\r')
        line[n - 1] = '\0';
    enum rc rc = parse_words(out, line, &h, e);
    host_release(&h);
    return rc ? err_in(e, "%s line %d", source, number) : RC_OK;
}

static enum rc parse_plain(
    struct hosts *out, const char *text, size_t len, const char *source, struct err *e)
{
    enum rc rc = RC_OK;
    int number = 1;
    if (memchr(text, '\0', len))
        return err_set(e, RC_USAGE, "%s is not a host list: it holds zero bytes", source);
    for (const char *p = text, *end = text + len; !rc && p < end; number++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = nl ? (size_t)(nl - p) : (size_t)(end - p);
        char *line = base_strndup(p, n);
        rc = parse_line(out, line, number, source, e);
        free(line);
        p += n + 1;
    }
    return rc;
}

/* --- JSON --- */

static enum rc host_from_json(struct hosts *out, const struct json *v, struct err *e)
{
    struct host h = {0};
    const char *name;
    int64_t port = 0, slots = 0;
    double price = json_num(v, "price_usd_per_hour", -1);
    enum rc rc = json_need_str(v, "host", &name, e);
    if (rc)
        return rc;
    if (json_get(v, "port"))
        rc = json_need_int(v, "port", 1, 65535, &port, e);
    const char *slots_key = json_get(v, "slots") ? "slots" : "gpus";
    if (!rc && json_get(v, slots_key))
        rc = json_need_int(v, slots_key, 1, 1024, &slots, e);
    if (!rc && price > 1e6)
        rc = err_set(e, RC_USAGE, "price of host '%s' is over a million USD an hour", name);
    if (rc)
        return rc;
    h.port = (int)port;
    h.slots = slots;
    h.is_local = json_bool(v, "local", false);
    h.micro_usd_per_hour = price < 0 ? -1 : (int64_t)(price * USD_MICRO + 0.5);
    h.connect = dup_or_null(json_str(v, "connect", json_str(v, "address", NULL)));
    h.user = dup_or_null(json_str(v, "user", NULL));
    h.identity = dup_or_null(json_str(v, "identity", NULL));
    h.jump = dup_or_null(json_str(v, "jump", NULL));
    h.dir = dup_or_null(json_str(v, "dir", NULL));
    h.address = dup_or_null(json_str(v, "rendezvous_address", NULL));
    rc = check_fields(&h, e);
    if (!rc)
        rc = add_range(out, &h, name, json_get(v, "exclude"), e);
    host_release(&h);
    return rc;
}

enum rc hosts_from_json(struct hosts *out, const struct json *v, const char *source, struct err *e)
{
    *out = (struct hosts){0};
    const struct json *list = json_is_arr(v) ? v : json_get(v, "hosts");
    enum rc rc = RC_OK;
    if (!json_is_arr(list))
        return err_set(e, RC_USAGE, "%s has no array 'hosts'", source);
    for (size_t i = 0; !rc && i < json_len(list); i++) {
        rc = host_from_json(out, json_at(list, i), e);
        if (rc)
            err_in(e, "%s host %zu", source, i + 1);
    }
    if (!rc && !out->count)
        rc = err_set(e, RC_USAGE, "%s lists no host", source);
    if (rc)
        hosts_release(out);
    return rc;
}

struct json *hosts_to_json(const struct hosts *hosts)
{
    struct json *arr = json_arr(), *doc = json_obj();
    for (size_t i = 0; i < hosts->count; i++) {
        const struct host *h = &hosts->v[i];
        const struct {
            const char *key, *value;
        } texts[] = {{"connect", h->connect}, {"user", h->user}, {"identity", h->identity},
            {"jump", h->jump}, {"dir", h->dir}, {"rendezvous_address", h->address}};
        struct json *o = json_obj();
        json_add_str(o, "host", h->name);
        for (size_t k = 0; k < BASE_COUNT(texts); k++)
            if (texts[k].value)
                json_add_str(o, texts[k].key, texts[k].value);
        if (h->is_local)
            json_add_bool(o, "local", true);
        if (h->port)
            json_add_int(o, "port", h->port);
        if (h->slots)
            json_add_int(o, "slots", h->slots);
        if (h->micro_usd_per_hour >= 0)
            json_add_num(o, "price_usd_per_hour", (double)h->micro_usd_per_hour / USD_MICRO);
        json_push(arr, o);
    }
    json_add(doc, "hosts", arr);
    return doc;
}

/* --- both --- */

enum rc hosts_parse(
    struct hosts *out, const char *text, size_t len, const char *source, struct err *e)
{
    static const char bom[] = "\xef\xbb\xbf"; /* as some editors begin a file */
    *out = (struct hosts){0};
    if (len >= 3 && memcmp(text, bom, 3) == 0) {
        text += 3;
        len -= 3;
    }
    size_t start = 0;
    while (start < len && isspace((unsigned char)text[start]))
        start++;
    bool is_json =
        start < len &&
        (text[start] == '{' || (text[start] == '[' && memchr(text + start, '"', len - start)));
    enum rc rc;
    if (is_json) {
        struct json *v = NULL;
        rc = json_parse(&v, text, len, e);
        rc = rc ? err_in(e, "%s", source) : hosts_from_json(out, v, source, e);
        json_free(v);
        return rc;
    }
    rc = parse_plain(out, text, len, source, e);
    if (!rc && !out->count)
        rc = err_set(e, RC_USAGE, "%s lists no host", source);
    if (rc)
        hosts_release(out);
    return rc;
}

/* "a,b[1-2,4],c" -> one per line: commas inside brackets belong to the range. */
static char *list_to_lines(const char *list)
{
    char *copy = base_strdup(list);
    int depth = 0;
    for (char *p = copy; *p; p++) {
        depth += (*p == '[') - (*p == ']');
        if (*p == ',' && depth == 0)
            *p = '\n';
    }
    return copy;
}

enum rc hosts_load(struct hosts *out, const char *path_or_list, struct err *e)
{
    *out = (struct hosts){0};
    struct str s;
    str_init(&s, HOSTS_FILE_MAX_BYTES);
    enum rc rc = RC_OK;
    if (strcmp(path_or_list, "-") == 0 || file_exists(path_or_list)) {
        char *source = base_printf("'%s'", path_or_list);
        rc = err_input(e, file_read(&s, path_or_list, HOSTS_FILE_MAX_BYTES, e));
        if (!rc)
            rc = hosts_parse(out, str_text(&s), s.len, source, e);
        free(source);
    } else if (strchr(path_or_list, '/')) {
        rc = err_set(e, RC_INVALID, "cannot open host list '%s'", path_or_list);
    } else {
        char *lines = list_to_lines(path_or_list);
        rc = hosts_parse(out, lines, strlen(lines), "host list", e);
        free(lines);
    }
    str_release(&s);
    return rc;
}

char *host_label(const struct host *h)
{
    struct str s = STR_INIT;
    bool is_v6 = strchr(h->name, ':') && h->port;
    if (h->user)
        str_addf(&s, "%s@", h->user);
    str_addf(&s, is_v6 ? "[%s]" : "%s", h->name);
    if (h->port)
        str_addf(&s, ":%d", h->port);
    return str_steal(&s);
}
