/* The newest lines of a log, bounded by bytes: what does not fit is counted, never waited for. */
#ifndef TUI_LOG_RING_H
#define TUI_LOG_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_LINE_MAX = 2000 };

struct log_ring {
    char **line; /* oldest first */
    size_t n, cap;
    size_t bytes, max_bytes;
    uint64_t dropped; /* lines that are gone */
};

void log_ring_init(struct log_ring *r, size_t max_bytes);
void log_ring_release(struct log_ring *r);
void log_ring_reset(struct log_ring *r);
/* Add the lines of text, each ended by '\n' or the end of the text; longer ones are cut. */
void log_ring_add(struct log_ring *r, const char *text);
/* Up to max lines that contain filter ("" for all), the newest first, after skipping as many of
 * them; borrowed until the next change. Returns how many there are in out. */
size_t log_ring_newest(
    const struct log_ring *r, const char *filter, size_t skip, const char **out, size_t max);
/* Lines that contain filter. */
size_t log_ring_count(const struct log_ring *r, const char *filter);

#endif
