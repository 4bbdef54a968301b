#include "launcher/session.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "launcher/hosts.h"
#include "launcher/identity.h"
#include "launcher/known_hosts.h"
#include "launcher/ssh.h"
#include "launcher/ssh_config.h"

enum { CONNECT_TIMEOUT_S = 20 };

/* One set of known_hosts files; hosts with the same files share it. */
struct known_set {
    char *key; /* the paths, joined */
    struct known_hosts *known;
};

struct session {
    struct fan fan;
    const struct hosts *hosts;
    struct ssh_settings *settings; /* one per host */
    struct ssh_options *options;   /* one per host */
    struct identity **identities;  /* one array per host */
    struct known_set *sets;
    size_t set_count;
    char *user;      /* login name of whoever runs this */
    char *run_known; /* path; NULL: none */
    bool accepts_new_keys;
    bool (*ask)(void *ctx, const char *text);
    void *ctx;
    double timeout_s;
};

struct fan *session_fan(struct session *s)
{
    return &s->fan;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    size_t count = s->fan.count;
    fan_release(&s->fan); /* connections first: they borrow the rest */
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; s->options && k < s->options[i].identity_count; k++)
            identity_release(&s->identities[i][k]);
        if (s->identities)
            free(s->identities[i]);
        ssh_settings_release(&s->settings[i]);
    }
    for (size_t i = 0; i < s->set_count; i++) {
        free(s->sets[i].key);
        known_hosts_free(s->sets[i].known);
    }
    free(s->sets);
    free(s->identities);
    free(s->settings);
    free(s->options);
    free(s->user);
    free(s->run_known);
    free(s);
}

/* --- preparing --- */

static enum rc load_known(struct session *s, const struct ssh_settings *set, const char *only,
    struct known_hosts **out, struct err *e)
{
    static const char *const usual[] = {
        "~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts"};
    const char *const *paths = set->known_count ? (const char *const *)set->known_hosts : usual;
    size_t count = set->known_count ? set->known_count : BASE_COUNT(usual);
    struct str key = STR_INIT;
    enum rc rc = RC_OK;
    if (only) {
        paths = &only;
        count = 1;
    }
    for (size_t i = 0; i < count; i++)
        str_addf(&key, "%s\n", paths[i]);
    for (size_t i = 0; i < s->set_count; i++)
        if (strcmp(s->sets[i].key, str_text(&key)) == 0)
            *out = s->sets[i].known;
    if (!*out) {
        struct known_hosts *k = known_hosts_new();
        s->sets = base_realloc(s->sets, (s->set_count + 1) * sizeof(*s->sets));
        s->sets[s->set_count++] = (struct known_set){base_strdup(str_text(&key)), k};
        if (s->run_known)
            rc = known_hosts_load(k, s->run_known, e);
        for (size_t i = 0; !rc && i < count; i++) {
            char *path = identity_expand(paths[i]);
            rc = known_hosts_load(k, path, e);
            free(path);
        }
        *out = k;
    }
    str_release(&key);
    return rc;
}

/* Key files: the one asked for, else the host list's, else ssh_config's, else the usual ones. */
static enum rc load_identities(struct session *s, size_t i, const char *wanted, struct err *e)
{
    static const char *const usual[] = {"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"};
    struct ssh_options *o = &s->options[i];
    const struct ssh_settings *set = &s->settings[i];
    const char *only = wanted ? wanted : s->hosts->v[i].identity;
    const char *const *paths = set->identity_count ? (const char *const *)set->identities : usual;
    size_t count = set->identity_count ? set->identity_count : BASE_COUNT(usual), n = 0;
    if (only) {
        paths = &only;
        count = 1;
    }
    s->identities[i] = base_calloc(count, sizeof(**s->identities));
    for (size_t k = 0; k < count; k++) {
        char *path = identity_expand(paths[k]);
        n += identity_probe(&s->identities[i][n], path);
        bool is_missing = only && !n;
        if (is_missing)
            err_set(e, RC_AUTH, "key file '%s' cannot be read or is no private key", path);
        free(path);
        if (is_missing)
            return RC_AUTH;
    }
    o->identities = s->identities[i];
    o->identity_count = n;
    o->identities_only = only || set->identities_only;
    return RC_OK;
}

static const char *agent_path(const struct ssh_settings *set)
{
    const char *env = getenv("SSH_AUTH_SOCK");
    if (!set->agent || strcmp(set->agent, "SSH_AUTH_SOCK") == 0)
        return env && *env ? env : NULL;
    return strcmp(set->agent, "none") == 0 ? NULL : set->agent;
}

static enum rc prepare_host(
    struct session *s, size_t i, const struct session_options *opt, struct err *e)
{
    const struct host *h = &s->hosts->v[i];
    const struct ssh_settings *set = &s->settings[i];
    struct ssh_options *o = &s->options[i];
    s->fan.v[i].label = host_label(h);
    if (h->is_local)
        return RC_OK;
    if (set->command)
        return err_set(e, RC_USAGE,
            "host '%s' is reached through ProxyCommand, which is not followed; use ProxyJump",
            s->fan.v[i].label);
    o->host = set->hostname ? set->hostname : h->connect ? h->connect : h->name;
    o->known_name = set->alias ? set->alias : o->host;
    o->port = h->port ? h->port : set->port ? set->port : 22;
    o->user = h->user ? h->user : set->user ? set->user : s->user;
    o->jump = h->jump ? h->jump : set->jump;
    o->agent_path = agent_path(set);
    enum rc rc = load_identities(s, i, opt->identity, e);
    if (!rc)
        rc = load_known(s, set, opt->known_hosts, &o->known, e);
    return rc ? err_in(e, "host '%s'", s->fan.v[i].label) : RC_OK;
}

static char *login_name(void)
{
    const struct passwd *pw = getpwuid(getuid());
    const char *env = getenv("USER");
    return base_strdup(pw ? pw->pw_name : env ? env : "root");
}

static void make_transport(struct session *s, size_t i)
{
    struct fan_host *f = &s->fan.v[i];
    if (f->t)
        f->t->ops->free(f->t);
    f->t = s->hosts->v[i].is_local ? transport_local_new() : ssh_new(&s->options[i]);
    f->err = (struct err)ERR_INIT;
}

/* --- unknown keys --- */

static void list_unknown(struct session *s, struct str *out)
{
    for (size_t i = 0; i < s->fan.count; i++) {
        const void *blob;
        size_t len;
        char print[KNOWN_FINGERPRINT_TEXT], type[64];
        struct fan_host *f = &s->fan.v[i];
        if (f->err.code != RC_CONFIRM || !ssh_unknown_key(f->t, &blob, &len))
            continue;
        known_hosts_fingerprint(blob, len, print);
        if (known_hosts_blob_type(blob, len, type, sizeof(type)))
            str_addf(out, "  %-24s %s %s\n", f->label, type, print);
    }
}

static enum rc keep_key(struct session *s, size_t i, struct err *e)
{
    const void *blob;
    size_t len;
    const struct ssh_options *o = &s->options[i];
    ssh_unknown_key(s->fan.v[i].t, &blob, &len);
    char *line = known_hosts_line(o->known_name, o->port, blob, len);
    if (!line)
        return err_set(e, RC_NODE, "host '%s' shows a malformed key", s->fan.v[i].label);
    known_hosts_add(o->known, s->run_known ? s->run_known : "accepted keys", line, strlen(line));
    enum rc rc = RC_OK;
    if (s->run_known)
        rc = file_append(s->run_known, line, strlen(line), 0600, e);
    free(line);
    return rc;
}

/* Ask once about all keys nobody knows; with consent, forget the refusals and keep the keys. */
static enum rc settle_unknown(struct session *s, bool *is_again, struct err *e)
{
    struct str text = STR_INIT;
    enum rc rc = RC_OK;
    *is_again = false;
    list_unknown(s, &text);
    if (text.len && (s->accepts_new_keys || (s->ask && s->ask(s->ctx, str_text(&text))))) {
        for (size_t i = 0; !rc && i < s->fan.count; i++) {
            if (s->fan.v[i].err.code != RC_CONFIRM)
                continue;
            rc = keep_key(s, i, e);
            make_transport(s, i);
            *is_again = true;
        }
    }
    str_release(&text);
    return rc;
}

/* --- connecting --- */

static enum progress step_connect(void *ctx, size_t i, struct err *e)
{
    struct session *s = ctx;
    struct transport *t = s->fan.v[i].t;
    return t->ops->connect(t, e);
}

static enum rc connect_all(struct session *s, struct err *e)
{
    bool is_again = true;
    struct err ignored = ERR_INIT;
    enum rc rc = RC_OK;
    for (int pass = 0; pass < 2 && is_again && !rc; pass++) {
        if (fan_run(&s->fan, "connecting", step_connect, s, s->timeout_s, &ignored) ==
            RC_INTERRUPTED)
            return err_set(e, RC_INTERRUPTED, "%s", ignored.msg);
        rc = settle_unknown(s, &is_again, e);
    }
    return rc;
}

enum rc session_reconnect(struct session *s, struct err *e)
{
    for (size_t i = 0; i < s->fan.count; i++)
        if (s->fan.v[i].err.code)
            make_transport(s, i);
    enum rc rc = connect_all(s, e);
    return rc ? rc : fan_first_error(&s->fan, e);
}

enum rc session_open(struct session **out, const struct hosts *hosts,
    const struct session_options *options, bool allows_missing, struct err *e)
{
    struct session *s = base_calloc(1, sizeof(*s));
    enum rc rc;
    *out = NULL;
    fan_init(&s->fan, hosts->count);
    s->fan.fanout = options->fanout;
    s->fan.interrupt_fd = options->interrupt_fd;
    s->hosts = hosts;
    s->settings = base_calloc(hosts->count, sizeof(*s->settings));
    s->options = base_calloc(hosts->count, sizeof(*s->options));
    s->identities = base_calloc(hosts->count, sizeof(*s->identities));
    s->user = login_name();
    s->run_known = options->run_known_hosts ? base_strdup(options->run_known_hosts) : NULL;
    s->accepts_new_keys = options->accepts_new_keys;
    s->ask = options->ask;
    s->ctx = options->ctx;
    s->timeout_s = options->timeout_s > 0 ? options->timeout_s : CONNECT_TIMEOUT_S;
    rc = ssh_settings_ask(s->settings, hosts, options->ssh_config, options->interrupt_fd, e);
    for (size_t i = 0; !rc && i < hosts->count; i++)
        rc = prepare_host(s, i, options, e);
    for (size_t i = 0; !rc && i < hosts->count; i++)
        make_transport(s, i);
    if (!rc)
        rc = connect_all(s, e);
    if (!rc && !allows_missing)
        rc = fan_first_error(&s->fan, e);
    if (rc)
        session_close(s);
    else
        *out = s;
    return rc;
}
