/* Host name to addresses without blocking: getaddrinfo in a thread of its own. */
#ifndef LAUNCHER_RESOLVE_H
#define LAUNCHER_RESOLVE_H

#include "base/err.h"

struct addrinfo;
struct resolve;

/* Start looking host up. Never fails; a failure comes out of resolve_take. */
struct resolve *resolve_new(const char *host, int port);
/* Abandons a look-up still under way; its thread ends by itself. */
void resolve_free(struct resolve *r);

/* Becomes readable when the answer is there. */
int resolve_fd(const struct resolve *r);
/* *out stays NULL while the answer is not there; otherwise borrowed, valid until resolve_free. */
enum rc resolve_take(struct resolve *r, const struct addrinfo **out, struct err *e);

#endif
