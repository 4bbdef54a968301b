#include "planner/probe_parts.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

/* --- memory, disk, optimizer --- */

/* Of all copies together, what a second brings. */
static double rate_of(const struct probe_part *p)
{
    return (double)p->at_once * (double)p->size[0] / p->seconds;
}

static double best_rate(const struct probe_input *in, enum probe_what what)
{
    double best = NAN;
    for (size_t i = 0; i < in->n_parts; i++)
        if (in->parts[i].what == what)
            best = fmax(best, rate_of(&in->parts[i]));
    return best;
}

void probe_parts_values(struct json *values, const struct probe_input *in)
{
    double memory = best_rate(in, PROBE_MEMORY), disk = best_rate(in, PROBE_DISK);
    double params = best_rate(in, PROBE_OPTIMIZER);
    if (isfinite(memory)) {
        json_add_num(values, "host_bytes_per_s", memory);
        json_add_num(values, "core_bytes_per_s", memory / (double)in->runs[0].hw.vcpus);
    }
    if (isfinite(memory) && isfinite(params))
        json_add_num(values, "host_adam_bytes_per_param", memory / params);
    if (isfinite(disk))
        json_add_num(values, "disk_bytes_per_s", disk);
}

/* --- products --- */

static bool same_shape(const struct probe_part *a, const struct probe_part *b)
{
    return a->what == PROBE_PRODUCT && b->what == PROBE_PRODUCT &&
           memcmp(a->size, b->size, sizeof a->size) == 0;
}

double probe_parts_thread_loss(const struct probe_input *in)
{
    double sum = 0, weight = 0;
    for (size_t i = 0; i < in->n_parts; i++) {
        const struct probe_part *many = &in->parts[i];
        if (many->threads < 2)
            continue;
        for (size_t k = 0; k < in->n_parts; k++) {
            const struct probe_part *one = &in->parts[k];
            if (one->threads != 1 || one->precision != many->precision || !same_shape(one, many))
                continue;
            double doublings = log2((double)many->threads);
            double lost = many->seconds * (double)many->threads / one->seconds;
            sum += log(lost) * doublings;
            weight += doublings * doublings;
        }
    }
    /* products = 1 + loss * doublings: of one doubling */
    return weight > 0 ? fmin(1, fmax(1e-6, exp(sum / weight) - 1)) : NAN;
}

double probe_parts_speedup(const struct probe_input *in, enum precision of, enum precision over)
{
    double sum = 0;
    int n = 0;
    for (size_t i = 0; i < in->n_parts; i++)
        for (size_t k = 0; k < in->n_parts; k++) {
            const struct probe_part *a = &in->parts[i], *b = &in->parts[k];
            if (a->precision != of || b->precision != over || a->threads != b->threads ||
                !same_shape(a, b))
                continue;
            sum += log(b->seconds / a->seconds);
            n++;
        }
    return n > 0 ? exp(sum / n) : NAN;
}
