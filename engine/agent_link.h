/* Ports and addresses as agents use them; the rest of agent_link.c is in engine/agent.h. */
#ifndef ENGINE_AGENT_LINK_H
#define ENGINE_AGENT_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Listen on any port of all interfaces, IPv6 and IPv4 where there is both; non-blocking. */
enum rc link_open_port(int *fd, int *port, struct err *e);

/* "10.0.0.1:4711" or "[::1]:4711" into its parts; false when it is neither. */
bool link_split_address(const char *text, char *host, size_t host_cap, char *port, size_t port_cap);

#endif
