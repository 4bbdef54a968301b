/* Where offers come from: one file per format or provider behind one table of operations. */
#ifndef INVENTORY_SOURCES_SOURCE_H
#define INVENTORY_SOURCES_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct offers;
struct str;

enum { SOURCE_MAX_BYTES = 64 << 20 };

/* What a source may need; only text sources look at the text. */
struct source_input {
    const char *text; /* NUL-terminated */
    size_t len;
    int64_t ranks_per_node; /* for this machine's CPU; 0: choose */
    bool is_reproducible;   /* leave times of day unknown */
    struct str *unknown;    /* names of columns and fields that nobody reads are added: "'a', 'b'";
                               may be NULL */
};

struct source {
    const char *name;
    const char *summary;
    /* Text sources: could this text be ours, judged by how it starts? NULL: needs no text. */
    bool (*recognises)(const char *text, size_t len);
    /* Append settled offers. On failure the sentence names row and field; what was appended
     * before is to be thrown away. */
    enum rc (*read)(struct offers *out, const struct source_input *in, struct err *e);
};

extern const struct source SOURCE_OFFERS_JSON; /* an offers/1 document */
extern const struct source SOURCE_OFFERS_CSV;  /* a table kept by hand or in a spreadsheet */
extern const struct source SOURCE_SAMPLE;      /* known shapes at their dated list prices */
extern const struct source SOURCE_HERE;        /* this machine */

/* Read a file ("-": standard input) with the source that recognises it. unknown: as above. */
enum rc source_read_file(struct offers *out, const char *path, struct str *unknown, struct err *e);

/* Write the list as CSV that reads back identically. */
void offers_write_csv(const struct offers *l, struct str *s);

#endif
