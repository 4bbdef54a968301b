#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/csv.h"
#include "planner/engine_memory.h"
#include "planner/evidence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

typedef enum rc evidence_reader(struct evidence *out, const struct csv *table, struct err *e);

static void read(const struct csv *table, evidence_reader *reader)
{
    struct evidence v;
    struct err e = ERR_INIT;
    if (reader(&v, table, &e)) {
        if (!e.msg[0])
            abort();
        return;
    }
    if (v.n_rows + v.n_skipped != table->rows || v.n_full_and_ok > table->rows)
        abort();
    for (size_t i = 0; i < v.n_rows; i++) {
        const struct evidence_row *r = &v.rows[i];
        if (model_check(&r->model, &e) || strategy_check(&r->strategy, &r->model, &e))
            abort();
        double bytes = engine_memory(&r->model, &r->strategy).total;
        if (!(bytes > 0) || !isfinite(bytes))
            abort();
    }
    evidence_release(&v);
}

/* Every row is either predicted or listed; those that are make sense and need memory. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct csv table;
    struct err e = ERR_INIT;
    if (csv_parse(&table, (const char *)data, len, &e) == RC_OK) {
        read(&table, evidence_read);
        read(&table, evidence_read_adapted);
        csv_release(&table);
    } else if (!e.msg[0]) {
        abort();
    }
    return 0;
}
