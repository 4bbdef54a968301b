/* The mesh of connections behind a comm; only comm.c uses this. */
#ifndef ENGINE_COMM_CONNECT_H
#define ENGINE_COMM_CONNECT_H

#include "engine/comm.h"

/* Fill fd[channel * ranks + rank] with connected sockets. The lower rank connects, the higher
 * accepts; both prove the token. On failure the sockets already in fd stay there for the caller to
 * close. */
enum rc comm_connect(int *fd, const struct comm_options *o, struct err *e);

#endif
