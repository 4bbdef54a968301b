#include "launcher/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"

/* Shared by the owner and the thread; the last one to leave frees it. */
struct resolve {
    atomic_int users;
    atomic_bool is_done;
    int fd;
    int status; /* of getaddrinfo */
    char *host;
    char port[8];
    struct addrinfo *list;
};

void resolve_free(struct resolve *r)
{
    if (!r || atomic_fetch_sub(&r->users, 1) > 1)
        return;
    if (r->list)
        freeaddrinfo(r->list);
    close(r->fd);
    free(r->host);
    free(r);
}

static void *look_up(void *arg)
{
    struct resolve *r = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    r->status = getaddrinfo(r->host, r->port, &hints, &r->list);
    if (r->status == EAI_NONAME || r->status == EAI_ADDRFAMILY) {
        hints.ai_flags =
            0; /* AI_ADDRCONFIG refuses ::1 and 127.0.0.1 on a machine without network */
        r->status = getaddrinfo(r->host, r->port, &hints, &r->list);
    }
    atomic_store(&r->is_done, true);
    eventfd_write(r->fd, 1);
    resolve_free(r);
    return NULL;
}

struct resolve *resolve_new(const char *host, int port)
{
    struct resolve *r = base_calloc(1, sizeof(*r));
    pthread_t thread;
    pthread_attr_t attr;
    r->host = base_strdup(host);
    snprintf(r->port, sizeof(r->port), "%d", port);
    r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&r->users, 2);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, look_up, r) != 0)
        look_up(r); /* no thread to be had: look up here, once */
    pthread_attr_destroy(&attr);
    return r;
}

int resolve_fd(const struct resolve *r)
{
    return r->fd;
}

enum rc resolve_take(struct resolve *r, const struct addrinfo **out, struct err *e)
{
    *out = NULL;
    if (!atomic_load(&r->is_done))
        return RC_OK;
    if (r->status || !r->list)
        return err_set(e, RC_NODE, "host name '%s' does not resolve: %s", r->host,
            gai_strerror(r->status ? r->status : EAI_NONAME));
    *out = r->list;
    return RC_OK;
}
