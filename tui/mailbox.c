#include "tui/mailbox.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"

struct node {
    struct message message;
    struct node *next;
};

struct mailbox {
    pthread_mutex_t lock;
    struct node *first, *last;
    int fd;
};

struct mailbox *mailbox_new(void)
{
    struct mailbox *mb = base_calloc(1, sizeof(*mb));
    pthread_mutex_init(&mb->lock, NULL);
    mb->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return mb;
}

void mailbox_free(struct mailbox *mb)
{
    if (!mb)
        return;
    struct message m;
    while (mailbox_take(mb, &m))
        message_release(&m);
    close(mb->fd);
    pthread_mutex_destroy(&mb->lock);
    free(mb);
}

void mailbox_post(struct mailbox *mb, struct message m)
{
    struct node *n = base_calloc(1, sizeof(*n));
    n->message = m;
    pthread_mutex_lock(&mb->lock);
    if (mb->last)
        mb->last->next = n;
    else
        mb->first = n;
    mb->last = n;
    pthread_mutex_unlock(&mb->lock);
    uint64_t one = 1;
    ssize_t done = write(mb->fd, &one, sizeof(one));
    (void)done; /* full means that the reader is awake anyway */
}

bool mailbox_take(struct mailbox *mb, struct message *out)
{
    pthread_mutex_lock(&mb->lock);
    struct node *n = mb->first;
    if (n) {
        mb->first = n->next;
        if (!mb->first)
            mb->last = NULL;
    } else {
        uint64_t count;
        ssize_t done = read(mb->fd, &count, sizeof(count));
        (void)done;
    }
    pthread_mutex_unlock(&mb->lock);
    if (!n)
        return false;
    *out = n->message;
    free(n);
    return true;
}

void message_release(struct message *m)
{
    if (m->release)
        m->release(m->payload);
    else
        free(m->payload);
    m->payload = NULL;
}

int mailbox_fd(const struct mailbox *mb)
{
    return mb->fd;
}
