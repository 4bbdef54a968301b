/* What others assert about engines, and whether it holds: planner/facts/claims.csv. Claims are
 * shown as claims; none is ever taken for a result, and refuted ones do not appear beside results.
 */
#ifndef PLANNER_CLAIMS_H
#define PLANNER_CLAIMS_H

#include "base/err.h"
#include "planner/rates.h"

struct json;

enum claim_verdict { CLAIM_HOLDS, CLAIM_REFUTED, CLAIM_UNVERIFIABLE };

/* Texts live as long as the claims. */
struct claim {
    const char *id, *claim, *finding, *source;
    enum claim_verdict verdict;
    /* a figure of an engine on so many GPUs; peak_bytes is 0 where it is none */
    enum engine engine;
    double params, peak_bytes;
    const char *gpu;
    int64_t gpus;
};

struct claims {
    struct claim *items;
    size_t n;
    void *table;
};

/* The built-in ones. Release with claims_release. */
enum rc claims_builtin(struct claims *out, struct err *e);
enum rc claims_parse(struct claims *out, const char *text, size_t len, struct err *e);
void claims_release(struct claims *c);

const char *claim_verdict_name(enum claim_verdict v);
/* Is it a figure of the engine for models of about that size on such GPUs that nobody refuted? */
bool claim_concerns(const struct claim *c, enum engine g, double params, const struct hardware *hw);
struct json *claim_to_json(const struct claim *c);

#endif
