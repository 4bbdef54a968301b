#include "run/money.h"

#include <stdbool.h>

#include "base/json.h"

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

void run_money_put(struct json *o, const struct run_money *m)
{
    json_add_int(o, "micro_usd_per_hour", m->micro_usd_per_hour);
    json_add_num(o, "money_since_wall_s", m->since_wall_s);
    json_add_int(o, "spent_micro_usd", m->spent_micro_usd);
}

enum rc run_money_read(struct run_money *out, const struct json *o, struct err *e)
{
    enum rc rc = json_need_int(o, "micro_usd_per_hour", -1, INT64_MAX, &out->micro_usd_per_hour, e);
    if (!rc)
        rc = json_need_num(o, "money_since_wall_s", &out->since_wall_s, e);
    if (!rc)
        rc = json_need_int(o, "spent_micro_usd", 0, INT64_MAX, &out->spent_micro_usd, e);
    return rc;
}
