#include "planner/range.h"

#include <math.h>

#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "planner/model.h"
#include "planner/strategy.h"

static const struct {
    const char *word, *text;
} NAMES[] = {
#define X(name, word, text) {word, text},
    RANGE_MAP(X)
#undef X
};

const char *range_word(enum range_kind k)
{
    return NAMES[k].word;
}

struct sizes sizes_of(const struct model *m, double params, const struct strategy *s)
{
    return (struct sizes){{[RANGE_PARAMETERS] = params,
        [RANGE_WIDTH] = (double)m->width,
        [RANGE_SEQ] = (double)s->seq,
        [RANGE_MICRO_TOKENS] = (double)s->seq * (double)s->micro_batch,
        [RANGE_RANKS] = (double)s->ranks,
        [RANGE_NODES] = ceil((double)s->ranks / (double)s->ranks_per_node)}};
}

bool ranges_are_known(const struct ranges *r)
{
    return r->high.of[0] > 0;
}

void ranges_add(struct ranges *r, const struct sizes *run)
{
    bool is_first = !ranges_are_known(r);
    for (int i = 0; i < RANGE_COUNT; i++) {
        r->low.of[i] = is_first ? run->of[i] : fmin(r->low.of[i], run->of[i]);
        r->high.of[i] = is_first ? run->of[i] : fmax(r->high.of[i], run->of[i]);
    }
}

/* Counts written with a few digits are no limits to the last one. */
unsigned ranges_outside(const struct ranges *r, const struct sizes *x)
{
    const double slack = 1e-3;
    unsigned outside = 0;
    for (int i = 0; ranges_are_known(r) && i < RANGE_COUNT; i++)
        if (x->of[i] < r->low.of[i] * (1 - slack) || x->of[i] > r->high.of[i] * (1 + slack))
            outside |= 1u << i;
    return outside;
}

double ranges_log_sd(const struct ranges *r, const struct sizes *x, unsigned outside)
{
    /* parameters and nodes go with width and ranks */
    static const double per_doubling[RANGE_COUNT] = {[RANGE_WIDTH] = 0.15,
        [RANGE_SEQ] = 0.08,
        [RANGE_MICRO_TOKENS] = 0.11,
        [RANGE_RANKS] = 0.07};
    const double most = 2; /* nobody knows then */
    double squares = 0;
    for (int i = 0; outside && i < RANGE_COUNT; i++) {
        if (!(outside & 1u << i))
            continue;
        bool is_above = x->of[i] > r->high.of[i];
        double far =
            per_doubling[i] * log2(is_above ? x->of[i] / r->high.of[i] : r->low.of[i] / x->of[i]);
        squares += far * far;
    }
    return fmin(sqrt(squares), most);
}

/* --- JSON --- */

struct json *ranges_json(const struct ranges *r)
{
    struct json *v = json_obj();
    for (int i = 0; i < RANGE_COUNT; i++) {
        struct json *two = json_arr();
        json_push_num(two, r->low.of[i]);
        json_push_num(two, r->high.of[i]);
        json_add(v, NAMES[i].word, two);
    }
    return v;
}

enum rc ranges_from_json(struct ranges *out, const struct json *v, struct err *e)
{
    *out = (struct ranges){0};
    for (int i = 0; v && i < RANGE_COUNT; i++) {
        const struct json *two = json_get(v, NAMES[i].word);
        double low = json_as_num(json_at(two, 0), NAN), high = json_as_num(json_at(two, 1), NAN);
        if (!(low > 0 && high >= low)) {
            *out = (struct ranges){0};
            return err_set(e, RC_INVALID, "'ranges' needs [low, high] of '%s'", NAMES[i].word);
        }
        out->low.of[i] = low;
        out->high.of[i] = high;
    }
    return RC_OK;
}

struct json *ranges_outside_json(const struct ranges *r, const struct sizes *x, unsigned outside)
{
    struct json *list = json_arr();
    for (int i = 0; i < RANGE_COUNT; i++) {
        if (!(outside & 1u << i))
            continue;
        struct json *v = json_obj();
        json_add_str(v, "quantity", NAMES[i].word);
        json_add_num(v, "value", x->of[i]);
        json_add_num(v, "low", r->low.of[i]);
        json_add_num(v, "high", r->high.of[i]);
        json_push(list, v);
    }
    return list;
}

/* --- in words --- */

static char *number(char buf[UNITS_TEXT], double x)
{
    if (x >= 1e6)
        return units_count(buf, x);
    snprintf(buf, UNITS_TEXT, "%.0f", x);
    return buf;
}

void ranges_describe(
    struct str *out, const struct ranges *r, const struct sizes *x, unsigned outside)
{
    char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT];
    const char *comma = "";
    for (int i = 0; i < RANGE_COUNT; i++) {
        if (!(outside & 1u << i))
            continue;
        str_addf(out, "%s%s %s (%s to %s)", comma, NAMES[i].text, number(a, x->of[i]),
            number(b, r->low.of[i]), number(c, r->high.of[i]));
        comma = ", ";
    }
}
