#include "launcher/ssh_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "launcher/fan.h"
#include "launcher/hosts.h"
#include "launcher/identity.h"

enum { ASK_TIMEOUT_S = 15 };

static void push(char ***list, size_t *count, const char *value)
{
    *list = base_realloc(*list, (*count + 1) * sizeof(**list));
    (*list)[(*count)++] = identity_expand(value);
}

static void push_words(char ***list, size_t *count, char *words)
{
    for (char *save = NULL, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        push(list, count, w);
}

static void replace(char **at, const char *value)
{
    free(*at);
    *at = strcmp(value, "none") == 0 ? NULL : base_strdup(value);
}

static void parse_setting(struct ssh_settings *s, const char *key, char *value)
{
    if (strcmp(key, "hostname") == 0)
        replace(&s->hostname, value);
    else if (strcmp(key, "port") == 0)
        s->port = (int)strtol(value, NULL, 10);
    else if (strcmp(key, "user") == 0)
        replace(&s->user, value);
    else if (strcmp(key, "proxyjump") == 0)
        replace(&s->jump, value);
    else if (strcmp(key, "proxycommand") == 0)
        replace(&s->command, value);
    else if (strcmp(key, "hostkeyalias") == 0)
        replace(&s->alias, value);
    else if (strcmp(key, "identityagent") == 0) {
        free(s->agent);
        s->agent = identity_expand(value);
    } else if (strcmp(key, "identitiesonly") == 0)
        s->identities_only = strcmp(value, "yes") == 0;
    else if (strcmp(key, "identityfile") == 0)
        push(&s->identities, &s->identity_count, value);
    else if (strcmp(key, "userknownhostsfile") == 0 || strcmp(key, "globalknownhostsfile") == 0)
        push_words(&s->known_hosts, &s->known_count, value);
}

void ssh_settings_parse(struct ssh_settings *out, const char *text)
{
    char *copy = base_strdup(text);
    *out = (struct ssh_settings){0};
    for (char *save = NULL, *line = strtok_r(copy, "\r\n", &save); line;
         line = strtok_r(NULL, "\r\n", &save)) {
        char *space = strchr(line, ' ');
        if (!space)
            continue;
        *space = '\0';
        parse_setting(out, line, space + 1);
    }
    if (out->port < 1 || out->port > 65535)
        out->port = 0;
    free(copy);
}

void ssh_settings_release(struct ssh_settings *s)
{
    free(s->hostname);
    free(s->user);
    free(s->jump);
    free(s->command);
    free(s->alias);
    free(s->agent);
    for (size_t i = 0; i < s->identity_count; i++)
        free(s->identities[i]);
    free(s->identities);
    for (size_t i = 0; i < s->known_count; i++)
        free(s->known_hosts[i]);
    free(s->known_hosts);
    *s = (struct ssh_settings){0};
}

static char *question(const struct host *h, const char *config_path)
{
    struct str s = STR_INIT;
    str_add(&s, "command -v ssh >/dev/null 2>&1 || exit 99; exec ssh -G");
    if (config_path) {
        str_add(&s, " -F ");
        str_add_shell_quoted(&s, config_path);
    }
    if (h->port)
        str_addf(&s, " -p %d", h->port);
    if (h->user) {
        str_add(&s, " -l ");
        str_add_shell_quoted(&s, h->user);
    }
    str_add(&s, " -- ");
    str_add_shell_quoted(&s, h->connect ? h->connect : h->name);
    return str_steal(&s);
}

static enum rc not_accepted(const char *host, const char *said, struct err *e)
{
    return err_set(e, RC_USAGE, "ssh does not accept its configuration for host '%s': %.*s", host,
        (int)strcspn(said, "\r\n"), said);
}

enum rc ssh_settings_ask(struct ssh_settings *out, const struct hosts *hosts,
    const char *config_path, int interrupt_fd, struct err *e)
{
    struct fan fan;
    struct exec *exec = base_calloc(hosts->count, sizeof(*exec));
    fan_init(&fan, hosts->count);
    fan.interrupt_fd = interrupt_fd;
    for (size_t i = 0; i < hosts->count; i++) {
        if (hosts->v[i].is_local)
            continue;
        char *command = question(&hosts->v[i], config_path);
        exec_init(&exec[i], command);
        free(command);
        fan.v[i].t = transport_local_new();
        fan.v[i].label = host_label(&hosts->v[i]);
    }
    enum rc rc = fan_exec(&fan, "asking ssh for its configuration", exec, ASK_TIMEOUT_S, e);
    for (size_t i = 0; i < hosts->count; i++) {
        out[i] = (struct ssh_settings){0};
        if (rc || !exec[i].command)
            continue;
        if (exec[i].status == 0)
            ssh_settings_parse(&out[i], str_text(&exec[i].out));
        else if (exec[i].status == 255)
            rc = not_accepted(fan.v[i].label, str_text(&exec[i].err), e);
    }
    for (size_t i = 0; i < hosts->count; i++)
        exec_release(&exec[i]);
    free(exec);
    fan_release(&fan);
    return rc;
}
