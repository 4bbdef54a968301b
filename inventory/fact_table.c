#include "inventory/fact_table.h"

#include <assert.h>
#include <math.h>

#include "base/units.h"

void facts_parse(struct csv *out, const unsigned char *text, size_t len)
{
    enum rc rc = csv_parse(out, (const char *)text, len, NULL);
    assert(!rc && "embedded facts are not valid CSV");
    (void)rc;
}

const char *facts_text(const struct csv *c, size_t row, const char *column)
{
    int i = csv_column(c, column);
    assert(i >= 0 && "embedded facts lack a column");
    return csv_cell(c, row, i);
}

double facts_number(const struct csv *c, size_t row, const char *column, double unknown)
{
    const char *text = facts_text(c, row, column);
    double x = unknown;
    enum rc rc = *text ? units_parse_number(text, &x, NULL) : RC_OK;
    assert(!rc && "embedded facts hold something that is not a number");
    (void)rc;
    return x;
}

int64_t facts_int(const struct csv *c, size_t row, const char *column, int64_t unknown)
{
    return (int64_t)llround(facts_number(c, row, column, (double)unknown));
}
