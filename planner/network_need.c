#include "planner/network_need.h"

#include <math.h>

#include "base/json.h"
#include "base/str.h"
#include "planner/estimate.h"

/* A plan whose wires may be of another rate. */
struct question {
    const struct prepared *prepared;
    const struct hardware *hw;
    const char *stack;
    const struct rates *rates;
    size_t rate_offset; /* of the rate in struct hardware */
};

static const double unlimited_times = 1e9; /* of what is offered: bytes take no time */
static const double least_times = 1e-9;    /* slower than that is never asked about */
static const double precision = 1.001;     /* of the rate found */

static double *rate_of(struct hardware *hw, const struct question *q)
{
    return (double *)((char *)hw + q->rate_offset);
}

/* Seconds of a step at a rate; INFINITY where the hardware makes no machine then. */
static double step_at(const struct question *q, double bytes_per_s)
{
    struct hardware hw = *q->hw;
    struct machine mc;
    struct estimate x;
    *rate_of(&hw, q) = bytes_per_s;
    if (machine_make(&mc, q->rates, &hw, q->stack, NULL))
        return INFINITY;
    prepared_estimate(&x, q->prepared, &mc);
    return x.step_s;
}

/* Seconds fall as the rate rises: the least rate whose step is within the limit. */
static double least_rate(const struct question *q, double offered, double limit_s)
{
    double low = offered, high = offered;
    if (step_at(q, offered) <= limit_s) {
        while (low > offered * least_times && step_at(q, low) <= limit_s) {
            high = low;
            low /= 4;
        }
        if (low <= offered * least_times)
            return 0;
    } else {
        while (high < offered * unlimited_times && step_at(q, high) > limit_s) {
            low = high;
            high *= 4;
        }
    }
    while (high > low * precision) {
        double middle = sqrt(low * high);
        if (step_at(q, middle) <= limit_s)
            high = middle;
        else
            low = middle;
    }
    return high;
}

static void answer(struct network_need *out, const struct question *q)
{
    struct hardware hw = *q->hw;
    double offered = *rate_of(&hw, q);
    double least_s = step_at(q, offered * unlimited_times);
    out->exists = true;
    out->offered_bytes_per_s = offered;
    out->slowdown = fmax(0, step_at(q, offered) / least_s - 1);
    out->is_bound = out->slowdown > NETWORK_BOUND;
    out->required_bytes_per_s = least_rate(q, offered, (1 + NETWORK_BOUND) * least_s);
}

enum rc network_needs_make(struct network_needs *out, const struct model *m,
    const struct strategy *s, const struct hardware *hw, const char *stack,
    const struct rates *rates, struct err *e)
{
    struct prepared *p = NULL;
    struct machine mc;
    *out = (struct network_needs){0};
    enum rc rc = machine_make(&mc, rates, hw, stack, e);
    if (!rc)
        rc = prepared_make(&p, m, s, true, e);
    if (rc)
        return rc;
    struct question q = {.prepared = p, .hw = hw, .stack = stack, .rates = rates};
    q.rate_offset = offsetof(struct hardware, fabric_bytes_per_s);
    if (hw->nodes > 1 && hw->fabric_bytes_per_s > 0)
        answer(&out->between, &q);
    q.rate_offset = offsetof(struct hardware, link_bytes_per_s);
    if (hw->ranks_per_node > 1 && hw->link_bytes_per_s > 0) /* ranks of a CPU have memory */
        answer(&out->inside, &q);
    prepared_free(p);
    return RC_OK;
}

/* --- in words --- */

static double gbps(double bytes_per_s)
{
    return bytes_per_s * 8 / 1e9;
}

static void describe(
    struct str *out, const char *wires, const char *of, const struct network_need *n)
{
    double needed = ceil(gbps(n->required_bytes_per_s)), offered = gbps(n->offered_bytes_per_s);
    if (n->is_bound)
        str_addf(out,
            "  %s: a step is %.0f %% longer than on wires without limit;\n    %.0f Gbit/s "
            "a %s would be enough, %.0f are offered\n",
            wires, 100 * n->slowdown, needed, of, offered);
    else
        str_addf(out, "  %s: %.0f Gbit/s a %s are enough, %.0f are offered\n", wires, needed, of,
            offered);
}

void network_needs_describe(struct str *out, const struct network_needs *n)
{
    if (n->between.exists)
        describe(out, "network between nodes", "node", &n->between);
    if (n->inside.exists && n->inside.is_bound)
        describe(out, "links inside a node", "GPU", &n->inside);
}

static struct json *need_json(
    const struct network_need *n, const char *offered, const char *required, double scale)
{
    if (!n->exists)
        return NULL;
    struct json *v = json_obj();
    json_add_num(v, offered, n->offered_bytes_per_s * scale);
    json_add_num(v, required, n->required_bytes_per_s * scale);
    json_add_num(v, "slowdown", n->slowdown);
    json_add_bool(v, "is_bound", n->is_bound);
    return v;
}

struct json *network_needs_json(const struct network_needs *n)
{
    struct json *v = json_obj();
    json_add_str(v, "definition",
        "least rate at which a step is at most 5 % longer than on wires without limit");
    json_add(v, "between_nodes",
        need_json(&n->between, "offered_gbps_per_node", "required_gbps_per_node", 8 / 1e9));
    json_add(v, "inside_nodes",
        need_json(&n->inside, "offered_bytes_per_second_per_gpu",
            "required_bytes_per_second_per_gpu", 1));
    return v;
}
