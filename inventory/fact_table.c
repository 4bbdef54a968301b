#include "inventory/fact_table.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "base/units.h"

enum { FACTS_MAX_BYTES = 4 << 20 };

static enum rc put_rows(struct fact_table *t, const struct csv *rows, struct err *e)
{
    for (size_t i = 0; i < rows->rows; i++) {
        struct fact_row r = {.table = rows, .row = i, .e = e};
        t->put(&r);
        if (r.rc)
            return r.rc;
    }
    if (t->all_put)
        t->all_put();
    return RC_OK;
}

void facts_load(struct fact_table *t)
{
    enum rc rc = csv_parse(&t->builtin, (const char *)t->text, *t->len, NULL);
    if (!rc)
        rc = put_rows(t, &t->builtin, NULL);
    assert(!rc && "embedded facts hold a mistake");
    (void)rc;
}

/* The embedded file has every column there is. */
static enum rc check_columns(const struct fact_table *t, struct err *e)
{
    for (size_t i = 0; i < t->user.columns; i++)
        if (csv_column(&t->builtin, t->user.header[i]) < 0)
            return err_set(e, RC_INVALID, "there is no column '%s' (berth help formats lists them)",
                t->user.header[i]);
    return RC_OK;
}

enum rc facts_load_user(struct fact_table *t, const char *path, struct err *e)
{
    struct str text;
    str_init(&text, FACTS_MAX_BYTES);
    csv_release(&t->user);
    enum rc rc = err_input(e, file_read(&text, path, FACTS_MAX_BYTES, e));
    if (!rc) {
        rc = csv_parse(&t->user, str_text(&text), text.len, e);
        if (!rc)
            rc = check_columns(t, e);
        if (!rc)
            rc = put_rows(t, &t->user, e);
        if (rc)
            err_in(e, "'%s'", path);
    }
    str_release(&text);
    return rc;
}

void fact_fail(struct fact_row *r, const char *column, const char *why)
{
    if (r->rc)
        return;
    r->rc = err_set(r->e, RC_INVALID, "line %zu: '%s': %s", r->table->lines[r->row], column, why);
}

const char *fact_text(const struct fact_row *r, const char *column, const char *def)
{
    const char *text = csv_cell(r->table, r->row, csv_column(r->table, column));
    return *text ? text : def;
}

double fact_number(struct fact_row *r, const char *column, double unknown)
{
    const char *text = fact_text(r, column, "");
    struct err e = ERR_INIT;
    double x = unknown;
    if (!*text)
        return unknown;
    if (units_parse_number(text, &x, &e))
        fact_fail(r, column, e.msg);
    else if (x < 0 || x > 1e9)
        fact_fail(r, column, "the number is absurd");
    return r->rc ? unknown : x;
}

int64_t fact_int(struct fact_row *r, const char *column, int64_t unknown)
{
    return (int64_t)llround(fact_number(r, column, (double)unknown));
}

int64_t fact_usd(struct fact_row *r, const char *column, int64_t unknown)
{
    const char *text = fact_text(r, column, "");
    struct err e = ERR_INIT;
    int64_t micro = unknown;
    if (*text && units_parse_usd(text, &micro, &e)) {
        fact_fail(r, column, e.msg);
        return unknown;
    }
    return micro;
}

int fact_word(struct fact_row *r, const char *column, const char *const *words, int n)
{
    const char *text = fact_text(r, column, words[0]);
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    fact_fail(r, column, "not a known word");
    return 0;
}
