/* Offers: what can be rented, or is owned; sorted, filtered, with where each value comes from. */
#ifndef TUI_VIEW_OFFERS_H
#define TUI_VIEW_OFFERS_H

#include <stdbool.h>

#include "tui/line_edit.h"
#include "tui/list.h"

struct filter;
struct offers;
struct shared_offers;
struct ui;
struct view_ops;

struct offers_view {
    struct shared_offers *shared; /* NULL until the first answer */
    const struct offers *data;    /* the list in it, NULL until then */
    struct list list;
    struct line_edit filter_text;
    struct filter *filter; /* of the last text that could be read; NULL: everything */
    char filter_error[160];
    bool hides_detail;
    bool is_single;
    bool is_loading;
    double since_s;   /* wall clock when loading began */
    double newest_s;  /* wall clock of the newest offer; 0: unknown */
    char error[400];  /* of the last loading */
    char source[200]; /* where they come from, for the title */
};

extern const struct view_ops view_offers;

void offers_view_init(struct offers_view *v);
void offers_view_release(struct offers_view *v);
/* An answer: takes a reference, or NULL; with an error the offers already there stay. */
void offers_view_answer(struct offers_view *v, struct shared_offers *shared, const char *error);

#endif
