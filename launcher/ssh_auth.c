/* Logging in: which keys are offered, and in which order. */
#include <libssh2.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "launcher/known_hosts.h"
#include "launcher/ssh_private.h"

/* 1.10 signs RSA keys with SHA-1 only, which OpenSSH refuses since 8.8; every refused offer counts
 * against the server's limit, so such keys are not offered at all. */
#if LIBSSH2_VERSION_NUM >= 0x010B00
static const bool has_rsa = true;
#else
static const bool has_rsa = false;
#endif

void ssh_auth_release(struct ssh *s)
{
    if (s->agent) {
        libssh2_agent_disconnect(s->agent);
        libssh2_agent_free(s->agent);
    }
    s->agent = NULL;
    s->candidate_count = s->candidate_at = 0;
}

static void add_candidate(struct ssh *s, struct ssh_candidate c)
{
    if (c.kind == KEY_RSA && !has_rsa) {
        s->rsa_skipped++;
        return;
    }
    if (s->candidate_count == SSH_MAX_CANDIDATES)
        return;
    size_t at = s->candidate_count++;
    for (; at > 0 && s->candidate[at - 1].kind > c.kind; at--)
        s->candidate[at] = s->candidate[at - 1];
    s->candidate[at] = c;
}

static bool is_wanted(const struct ssh *s, const struct libssh2_agent_publickey *key)
{
    if (!s->opt.identities_only)
        return true;
    for (size_t i = 0; i < s->opt.identity_count; i++) {
        const struct identity *id = &s->opt.identities[i];
        if (id->public_len == key->blob_len &&
            memcmp(id->public_blob, key->blob, key->blob_len) == 0)
            return true;
    }
    return false;
}

static void add_agent_keys(struct ssh *s)
{
    if (!s->opt.agent_path)
        return;
    s->agent = libssh2_agent_init(s->session);
    if (!s->agent)
        return;
    libssh2_agent_set_identity_path(s->agent, s->opt.agent_path);
    if (libssh2_agent_connect(s->agent) || libssh2_agent_list_identities(s->agent))
        return;
    struct libssh2_agent_publickey *key = NULL;
    while (libssh2_agent_get_identity(s->agent, &key, key) == 0) {
        char type[64];
        if (known_hosts_blob_type(key->blob, key->blob_len, type, sizeof(type)) &&
            key_kind_of(type) != KEY_OTHER && is_wanted(s, key))
            add_candidate(s, (struct ssh_candidate){key_kind_of(type), key, NULL});
    }
}

static void add_files(struct ssh *s)
{
    for (size_t i = 0; i < s->opt.identity_count; i++) {
        const struct identity *id = &s->opt.identities[i];
        if (id->is_encrypted)
            s->encrypted_skipped++;
        else
            add_candidate(s, (struct ssh_candidate){id->kind, NULL, id});
    }
}

static void describe_candidates(struct ssh *s, struct str *out)
{
    for (size_t i = 0; i < s->candidate_count; i++) {
        const struct ssh_candidate *c = &s->candidate[i];
        str_addf(out, "%s%s key %s", i ? ", " : "", key_kind_name(c->kind),
            c->file ? c->file->path : "of the key agent");
    }
    if (!s->candidate_count)
        str_add(out, "no key");
    if (s->rsa_skipped)
        str_addf(
            out, "; RSA keys need libssh2 1.11 (this is %s), use ed25519", ssh_library_version());
    if (s->encrypted_skipped)
        str_add(out, "; a key file has a passphrase, load it with ssh-add");
}

static enum progress refused(struct ssh *s, struct err *e)
{
    struct str tried = STR_INIT;
    describe_candidates(s, &tried);
    err_set(e, RC_AUTH, "%s refused user '%s' (offered: %s)", s->opt.host, s->opt.user,
        str_text(&tried));
    str_release(&tried);
    return PROGRESS_FAILED;
}

static enum progress step_methods(struct ssh *s, struct err *e)
{
    /* also tries the method "none", which may already be enough */
    const char *list =
        libssh2_userauth_list(s->session, s->opt.user, (unsigned)strlen(s->opt.user));
    if (!list && ssh_would_block(s))
        return PROGRESS_WAIT;
    if (!list && libssh2_userauth_authenticated(s->session)) {
        s->stage = SSH_READY;
        return PROGRESS_DONE;
    }
    if (!list) {
        err_set(e, RC_NODE, "logging in failed: %s", ssh_last_error(s));
        return PROGRESS_FAILED;
    }
    if (!strstr(list, "publickey")) {
        char *safe = base_strdup(list);
        err_set(e, RC_AUTH, "%s takes no public key, only: %s", s->opt.host, safe);
        free(safe);
        return PROGRESS_FAILED;
    }
    s->rsa_skipped = s->encrypted_skipped = 0;
    add_agent_keys(s);
    add_files(s);
    s->stage = SSH_AUTH;
    return PROGRESS_WAIT;
}

static int offer(struct ssh *s, const struct ssh_candidate *c)
{
    if (c->from_agent)
        return libssh2_agent_userauth(s->agent, s->opt.user, c->from_agent);
    return libssh2_userauth_publickey_fromfile_ex(
        s->session, s->opt.user, (unsigned)strlen(s->opt.user), NULL, c->file->path, NULL);
}

static enum progress step_offer(struct ssh *s, struct err *e)
{
    while (s->candidate_at < s->candidate_count) {
        int r = offer(s, &s->candidate[s->candidate_at]);
        if (r == LIBSSH2_ERROR_EAGAIN)
            return PROGRESS_WAIT;
        if (r == 0) { /* never call userauth again on this session: it would not return */
            s->stage = SSH_READY;
            s->tries = 0;
            return PROGRESS_DONE;
        }
        if (r == LIBSSH2_ERROR_SOCKET_DISCONNECT || r == LIBSSH2_ERROR_SOCKET_RECV)
            break; /* the server had enough */
        s->candidate_at++;
    }
    return refused(s, e);
}

enum progress ssh_auth_step(struct ssh *s, struct err *e)
{
    return s->stage == SSH_METHODS ? step_methods(s, e) : step_offer(s, e);
}
