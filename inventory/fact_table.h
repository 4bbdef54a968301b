/* Reading the embedded fact tables: they are ours, so a mistake in them is ours as well. */
#ifndef INVENTORY_FACT_TABLE_H
#define INVENTORY_FACT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/csv.h"

/* Parse an embedded CSV file; ends the program when it is broken (tests read every file). */
void facts_parse(struct csv *out, const unsigned char *text, size_t len);
/* A cell; "" when empty. The column must exist. */
const char *facts_text(const struct csv *c, size_t row, const char *column);
/* A number times scale, or unknown when the cell is empty. */
double facts_number(const struct csv *c, size_t row, const char *column, double unknown);
int64_t facts_int(const struct csv *c, size_t row, const char *column, int64_t unknown);

#endif
