#include "planner/claims.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/embed.h"
#include "base/json.h"

EMBED(claims_csv);

/* Sizes are rounded in speech: 405B is 405.9e9. */
static const double same_size = 0.05;

static const char *const verdicts[] = {"holds", "refuted", "unverifiable"};

const char *claim_verdict_name(enum claim_verdict v)
{
    return verdicts[v];
}

static const char *cell(const struct csv *t, size_t row, const char *column)
{
    return csv_cell(t, row, csv_column(t, column));
}

static double number(const char *text)
{
    return *text ? strtod(text, NULL) : 0;
}

static enum rc read_claim(struct claim *c, const struct csv *t, size_t row, struct err *e)
{
    const char *verdict = cell(t, row, "verdict"), *engine = cell(t, row, "engine");
    size_t v = 0;
    *c = (struct claim){.id = cell(t, row, "id"),
        .claim = cell(t, row, "claim"),
        .finding = cell(t, row, "finding"),
        .source = cell(t, row, "source"),
        .gpu = cell(t, row, "gpu"),
        .params = number(cell(t, row, "params")),
        .peak_bytes = number(cell(t, row, "peak_bytes")),
        .gpus = (int64_t)number(cell(t, row, "gpus"))};
    while (v < BASE_COUNT(verdicts) && strcmp(verdicts[v], verdict) != 0)
        v++;
    c->verdict = (enum claim_verdict)v;
    if (v == BASE_COUNT(verdicts))
        return err_set(e, RC_INVALID, "claim '%s': unknown verdict '%s'", c->id, verdict);
    if (!*c->id || !*c->claim || !*c->finding || !*c->source)
        return err_set(e, RC_INVALID, "claim '%s' lacks its claim, finding or source", c->id);
    return *engine ? engine_parse(engine, &c->engine, e) : RC_OK;
}

enum rc claims_parse(struct claims *out, const char *text, size_t len, struct err *e)
{
    struct csv *t = base_calloc(1, sizeof *t);
    struct claims c = {.table = t};
    enum rc rc = csv_parse(t, text, len, e);
    if (!rc)
        c.items = base_calloc(t->rows + 1, sizeof *c.items);
    for (; !rc && c.n < t->rows; c.n++)
        rc = read_claim(&c.items[c.n], t, c.n, e);
    if (rc) {
        claims_release(&c);
        return rc;
    }
    *out = c;
    return RC_OK;
}

enum rc claims_builtin(struct claims *out, struct err *e)
{
    return claims_parse(out, (const char *)embed_claims_csv, embed_claims_csv_len, e);
}

void claims_release(struct claims *c)
{
    if (c->table)
        csv_release(c->table);
    free(c->table);
    free(c->items);
    *c = (struct claims){0};
}

bool claim_concerns(const struct claim *c, enum engine g, double params, const struct hardware *hw)
{
    return c->peak_bytes > 0 && c->verdict != CLAIM_REFUTED && c->engine == g &&
           fabs(params / c->params - 1) < same_size && strcmp(c->gpu, hw->gpu) == 0 &&
           c->gpus == hw->nodes * hw->ranks_per_node;
}

struct json *claim_to_json(const struct claim *c)
{
    struct json *v = json_obj();
    json_add_str(v, "id", c->id);
    json_add_str(v, "verdict", claim_verdict_name(c->verdict));
    json_add_str(v, "claim", c->claim);
    json_add_str(v, "finding", c->finding);
    json_add_str(v, "source", c->source);
    if (c->peak_bytes > 0) {
        json_add_str(v, "engine", engine_name(c->engine));
        json_add_num(v, "peak_bytes", c->peak_bytes);
    } else {
        json_add_null(v, "engine");
        json_add_null(v, "peak_bytes");
    }
    return v;
}
