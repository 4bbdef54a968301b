/* How worker threads hand finished, immutable results to the UI thread. */
#ifndef TUI_MAILBOX_H
#define TUI_MAILBOX_H

#include <stdbool.h>

struct mailbox;

/* What a message carries; the payload's type follows from it (tui/work.h). */
struct message {
    int kind;
    void *payload;                  /* owned by the message */
    void (*release)(void *payload); /* NULL: free() */
};

struct mailbox *mailbox_new(void);
/* Call after all workers have ended; drops what was not read. NULL is allowed. */
void mailbox_free(struct mailbox *mb);

/* Any thread. Takes the payload. */
void mailbox_post(struct mailbox *mb, struct message m);
/* UI thread. Oldest message into *out, which the caller releases with message_release; false when
 * there is none. */
bool mailbox_take(struct mailbox *mb, struct message *out);
void message_release(struct message *m);
/* Readable while messages wait. */
int mailbox_fd(const struct mailbox *mb);

#endif
