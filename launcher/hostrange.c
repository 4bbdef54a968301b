#include "launcher/hostrange.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct names {
    char **v;
    size_t count, max;
};

void hostrange_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static enum rc push(struct names *n, char *name, struct err *e)
{
    if (n->count == n->max) {
        free(name);
        return err_set(e, RC_LIMIT, "range expands to more than %zu hosts", n->max);
    }
    n->v = base_realloc(n->v, (n->count + 1) * sizeof(*n->v));
    n->v[n->count++] = name;
    return RC_OK;
}

/* One item of a group: "07", "01-04" or "b-d". */
struct item {
    long first, last;
    int width; /* zero padding; 0 for letters */
    bool is_letter;
};

static enum rc parse_item(struct item *it, const char *p, size_t n, struct err *e)
{
    char text[32];
    if (n == 0 || n >= sizeof(text))
        return err_set(e, RC_USAGE, "range has an empty or overlong item");
    memcpy(text, p, n);
    text[n] = '\0';

    if (islower((unsigned char)text[0])) {
        it->is_letter = true;
        it->first = it->last = text[0];
        if (n == 3 && text[1] == '-' && islower((unsigned char)text[2]))
            it->last = text[2];
        else if (n != 1)
            return err_set(e, RC_USAGE, "'%s' is not a range of letters", text);
    } else {
        size_t digits = strspn(text, "0123456789");
        char *dash = text + digits, *end = dash;
        it->first = it->last = strtol(text, NULL, 10);
        it->width = (int)digits;
        if (*dash == '-' && isdigit((unsigned char)dash[1]))
            it->last = strtol(dash + 1, &end, 10);
        if (digits == 0 || digits > 9 || *end || strlen(dash) > 10)
            return err_set(e, RC_USAGE, "'%s' is not a range", text);
    }
    if (it->last < it->first)
        return err_set(e, RC_USAGE, "range '%s' runs backwards", text);
    return RC_OK;
}

static enum rc expand_tail(struct names *n, const char *head, const char *tail, struct err *e);

static enum rc expand_item(
    struct names *n, const char *head, const struct item *it, const char *tail, struct err *e)
{
    enum rc rc = RC_OK;
    if ((size_t)(it->last - it->first) >= n->max)
        return err_set(e, RC_LIMIT, "range expands to more than %zu hosts", n->max);
    for (long x = it->first; !rc && x <= it->last; x++) {
        char *longer = it->is_letter ? base_printf("%s%c", head, (int)x)
                                     : base_printf("%s%0*ld", head, it->width, x);
        rc = expand_tail(n, longer, tail, e);
        free(longer);
    }
    return rc;
}

static enum rc expand_tail(struct names *n, const char *head, const char *tail, struct err *e)
{
    const char *open = strchr(tail, '['), *stray = strchr(tail, ']');
    if (stray && (!open || stray < open))
        return err_set(e, RC_USAGE, "']' without '[' in '%s%s'", head, tail);
    if (!open)
        return push(n, base_printf("%s%s", head, tail), e);
    const char *close = strchr(open, ']');
    if (!close)
        return err_set(e, RC_USAGE, "'[' without ']' in '%s%s'", head, tail);
    char *longer = base_printf("%s%.*s", head, (int)(open - tail), tail);
    enum rc rc = RC_OK;
    for (const char *p = open + 1; !rc && p <= close;) {
        const char *comma = memchr(p, ',', (size_t)(close - p));
        const char *stop = comma ? comma : close;
        struct item it = {0};
        rc = parse_item(&it, p, (size_t)(stop - p), e);
        if (!rc)
            rc = expand_item(n, longer, &it, close + 1, e);
        p = stop + 1;
    }
    free(longer);
    return rc;
}

enum rc hostrange_expand(char ***out, size_t *count, const char *text, size_t max, struct err *e)
{
    struct names n = {.max = max};
    enum rc rc = RC_OK;
    *out = NULL;
    *count = 0;
    if (strlen(text) > 512)
        return err_set(e, RC_LIMIT, "host name is longer than 512 characters");
    if (strchr(text, ':')) /* an IPv6 address has no ranges */
        rc = push(&n, base_strdup(text), e);
    else
        rc = expand_tail(&n, "", text, e);
    if (rc) {
        hostrange_free(n.v, n.count);
        return rc;
    }
    *out = n.v;
    *count = n.count;
    return RC_OK;
}

/* --- folding --- */

/* Length of the name without its last run of digits, and that number; false without one. */
static bool split_number(const char *name, size_t *stem, long *number, int *width)
{
    size_t n = strlen(name), digits = 0;
    while (digits < n && digits < 9 && isdigit((unsigned char)name[n - digits - 1]))
        digits++;
    if (!digits || strchr(name, '.') || strchr(name, ':'))
        return false;
    *stem = n - digits;
    *number = strtol(name + *stem, NULL, 10);
    *width = (int)digits;
    return true;
}

static bool is_sibling(const char *a, const char *b)
{
    size_t sa, sb;
    long na, nb;
    int wa, wb;
    return split_number(a, &sa, &na, &wa) && split_number(b, &sb, &nb, &wb) && sa == sb &&
           wa == wb && memcmp(a, b, sa) == 0;
}

static void fold_group(struct str *out, const char *const *names, size_t count)
{
    size_t stem;
    long number;
    int width;
    split_number(names[0], &stem, &number, &width);
    str_addf(out, "%.*s[", (int)stem, names[0]);
    for (size_t i = 0; i < count;) {
        size_t j = i;
        long first, last;
        split_number(names[i], &stem, &first, &width);
        last = first;
        while (j + 1 < count && split_number(names[j + 1], &stem, &number, &width) &&
               number == last + 1) {
            last = number;
            j++;
        }
        str_addf(out, "%s%s", i ? "," : "", names[i] + stem);
        if (j > i)
            str_addf(out, "-%s", names[j] + stem);
        i = j + 1;
    }
    str_addc(out, ']');
}

void hostrange_fold(struct str *out, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t j = i + 1;
        while (j < count && is_sibling(names[i], names[j]))
            j++;
        if (i)
            str_add(out, ", ");
        if (j - i > 1)
            fold_group(out, names + i, j - i);
        else
            str_add(out, names[i]);
        i = j;
    }
}
