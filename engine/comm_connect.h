/* The connections behind a comm, and how both ends of one prove that they belong to the run. */
#ifndef ENGINE_COMM_CONNECT_H
#define ENGINE_COMM_CONNECT_H

#include "engine/comm.h"

/* Fill fd[channel * ranks + rank] with connected sockets. The lower rank connects, the higher
 * accepts; both prove the token. On failure the sockets already in fd stay there for the caller to
 * close. */
enum rc comm_connect(int *fd, const struct comm_options *o, struct err *e);

/* Until fd is ready for events (poll); false: not before the deadline. */
bool comm_wait(int fd, short events, double deadline);

/* Prove to whoever accepted, and have it proved, that both know the token. */
bool comm_greet(const struct comm_options *o, int fd, int channel, double deadline);
/* The other end of it; says who connected. */
bool comm_welcome(const struct comm_options *o, int fd, int *rank, int *channel, double deadline);

#endif
