#include "run/money.h"

#include <stdbool.h>

int64_t run_money_cost(const struct run_money *m, double until_wall_s)
{
    if (m->micro_usd_per_hour < 0)
        return -1;
    double paid_s = m->since_wall_s > 0 ? until_wall_s - m->since_wall_s : 0;
    double cost = paid_s > 0 ? paid_s / 3600 * (double)m->micro_usd_per_hour : 0;
    double room = (double)(INT64_MAX - m->spent_micro_usd);
    return cost < room ? m->spent_micro_usd + (int64_t)cost : INT64_MAX;
}

static double earlier(double a, double b)
{
    return a < b ? a : b;
}

void run_money_go_on(struct run_money *m, int64_t micro_usd_per_hour, double ended_wall_s,
    double rented_since_wall_s, double now_wall_s)
{
    bool is_known = m->micro_usd_per_hour >= 0 && m->since_wall_s > 0;
    double until_s = now_wall_s, since_s = now_wall_s;
    if (rented_since_wall_s > 0) {
        since_s = rented_since_wall_s;
        until_s = earlier(since_s, ended_wall_s > 0 ? ended_wall_s : since_s);
    }
    if (is_known)
        m->spent_micro_usd = run_money_cost(m, until_s);
    if (is_known || rented_since_wall_s > 0 || !(m->since_wall_s > 0))
        m->since_wall_s = since_s;
    m->micro_usd_per_hour = micro_usd_per_hour;
}
