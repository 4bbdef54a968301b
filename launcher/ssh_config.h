/* What the user's ssh_config says about a host, asked of the ssh program (`ssh -G`), which handles
 * Include, Match and tokens. Without an ssh program only what the host list says counts. */
#ifndef LAUNCHER_SSH_CONFIG_H
#define LAUNCHER_SSH_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct hosts;

/* All strings owned; NULL or 0: not said. */
struct ssh_settings {
    char *hostname; /* to connect to */
    int port;
    char *user;
    char *jump;    /* ProxyJump */
    char *command; /* ProxyCommand, which is not followed */
    char *alias;   /* HostKeyAlias */
    char *agent;   /* IdentityAgent: a path, "none", or SSH_AUTH_SOCK */
    char **identities;
    size_t identity_count;
    bool identities_only;
    char **known_hosts; /* user's and global files */
    size_t known_count;
};

/* Read the output of `ssh -G`. Unknown lines are ignored. */
void ssh_settings_parse(struct ssh_settings *out, const char *text);
void ssh_settings_release(struct ssh_settings *s);

/* One per host, in order; out[count] comes empty. config_path: -F; NULL: the user's own. Hosts for
 * which ssh gives no answer keep empty settings; what ssh said goes into the error when it refuses
 * the configuration itself. */
enum rc ssh_settings_ask(struct ssh_settings *out, const struct hosts *hosts,
    const char *config_path, int interrupt_fd, struct err *e);

#endif
