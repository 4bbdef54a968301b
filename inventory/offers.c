/* The list of offers: adding, sorting, keeping what a filter lets through. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "inventory/offer.h"
#include "inventory/offer_fields.h"

struct offers {
    struct offer *items;
    size_t n, cap;
};

struct offers *offers_new(void)
{
    return base_calloc(1, sizeof(struct offers));
}

void offers_free(struct offers *l)
{
    if (!l)
        return;
    free(l->items);
    free(l);
}

enum rc offers_add(struct offers *l, const struct offer *o, struct err *e)
{
    if (l->n >= OFFERS_MAX)
        return err_set(e, RC_LIMIT, "more than %d offers", OFFERS_MAX);
    BASE_GROW(l->items, l->cap, l->n + 1);
    l->items[l->n++] = *o;
    return RC_OK;
}

size_t offers_count(const struct offers *l)
{
    return l->n;
}

const struct offer *offers_at(const struct offers *l, size_t i)
{
    return i < l->n ? &l->items[i] : NULL;
}

/* --- sorting: pointers are ordered, then the offers moved once --- */

struct key {
    const struct offer *offer;
    double number; /* NAN: unknown, or a text */
    char *text;    /* NULL when sorting by number */
};

static int compare_values(const struct key *a, const struct key *b)
{
    bool is_unknown_a = a->text ? !*a->text : isnan(a->number);
    bool is_unknown_b = b->text ? !*b->text : isnan(b->number);
    if (is_unknown_a || is_unknown_b)
        return 2 * (is_unknown_a - is_unknown_b); /* even: last in either direction */
    if (a->text)
        return strcasecmp(a->text, b->text) < 0 ? -1 : strcasecmp(a->text, b->text) > 0;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int compare_up(const void *pa, const void *pb)
{
    const struct key *a = pa, *b = pb;
    int c = compare_values(a, b);
    return c ? c : a->offer < b->offer ? -1 : 1;
}

static int compare_down(const void *pa, const void *pb)
{
    const struct key *a = pa, *b = pb;
    int c = compare_values(a, b);
    if (c == 1 || c == -1)
        return -c;
    return c ? c : a->offer < b->offer ? -1 : 1;
}

static void sort_keys(struct offers *l, struct key *keys, bool is_descending)
{
    qsort(keys, l->n, sizeof(*keys), is_descending ? compare_down : compare_up);
    struct offer *sorted = base_calloc(l->n, sizeof(*sorted));
    for (size_t i = 0; i < l->n; i++) {
        sorted[i] = *keys[i].offer;
        free(keys[i].text);
    }
    free(l->items);
    free(keys);
    l->items = sorted;
    l->cap = l->n;
}

void offers_sort(struct offers *l, enum offer_field by, bool is_descending)
{
    if (l->n < 2)
        return;
    enum field_kind kind = FIELDS[by].kind;
    bool is_number = kind == FIELD_COUNT || kind == FIELD_NUMBER || kind == FIELD_USD;
    struct key *keys = base_calloc(l->n, sizeof(*keys));
    for (size_t i = 0; i < l->n; i++) {
        keys[i].offer = &l->items[i];
        keys[i].number = is_number ? offer_number(&l->items[i], by) : NAN;
        keys[i].text = is_number ? NULL : offer_text(&l->items[i], by);
    }
    sort_keys(l, keys, is_descending);
}

void offers_sort_by_gpu_price(struct offers *l, bool is_descending)
{
    if (l->n < 2)
        return;
    struct key *keys = base_calloc(l->n, sizeof(*keys));
    for (size_t i = 0; i < l->n; i++) {
        int64_t price = offer_price_per_gpu_hour(&l->items[i]);
        keys[i].offer = &l->items[i];
        keys[i].number = price < 0 ? NAN : (double)price;
    }
    sort_keys(l, keys, is_descending);
}

void offers_keep(
    struct offers *l, bool (*keep)(const struct offer *o, void *context), void *context)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++)
        if (keep(&l->items[i], context))
            l->items[kept++] = l->items[i];
    l->n = kept;
}
