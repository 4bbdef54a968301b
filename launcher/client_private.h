/* Shared by launcher/client*.c. */
#ifndef LAUNCHER_CLIENT_PRIVATE_H
#define LAUNCHER_CLIENT_PRIVATE_H

#include "launcher/client.h"
#include "launcher/fan.h"
#include "launcher/hosts.h"
#include "launcher/talk.h"

struct client {
    struct run_info info;
    struct hosts hosts;
    struct session_options connect;
    char *known;             /* the run's own known_hosts */
    struct session *session; /* over all hosts, NULL before */
    struct talk_node *nodes; /* one per host */
    /* The same with the hosts of earlier attempts behind, where there are any. */
    struct hosts all_hosts;
    struct talk_node *all_nodes;
    struct session *all;
};

/* Everywhere the run ever was: the hosts it has, then those of earlier attempts. */
struct everywhere {
    struct fan *fan; /* borrowed, valid until client_close */
    const struct talk_node *nodes;
};

/* Connect to all hosts (missing ones are merely out); kept for later calls. RC_INVALID when the run
 * never got as far as its nodes. */
enum rc client_connect(struct client *c, struct err *e);
/* The same for every host that took part in any attempt. */
enum rc client_connect_all(struct client *c, struct everywhere *out, struct err *e);
/* Take what a status or state message of the coordinator says into info, and save. */
enum rc client_note(struct client *c, const struct json *status, struct err *e);

#endif
