#include "tui/view_offers.h"

#include <math.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "inventory/filter.h"
#include "inventory/offer.h"
#include "tui/argv.h"
#include "tui/plan_search.h"
#include "tui/screen.h"
#include "tui/show.h"
#include "tui/text_put.h"
#include "tui/ui.h"

/* --- the list --- */

enum {
    COLUMN_PROVIDER,
    COLUMN_REGION,
    COLUMN_GPU,
    COLUMN_COUNT,
    COLUMN_MEMORY,
    COLUMN_FABRIC,
    COLUMN_GBPS,
    COLUMN_PRICE,
    COLUMN_NODES,
    COLUMN_MARKET
};

static const struct list_column columns[] = {
    [COLUMN_PROVIDER] = {"PROVIDER", 11, false, true, 0},
    [COLUMN_REGION] = {"REGION", 11, false, true, 5},
    [COLUMN_GPU] = {"GPU", 14, false, true, 0},
    [COLUMN_COUNT] = {"N", 2, true, false, 0},
    [COLUMN_MEMORY] = {"MEMORY", 7, true, false, 1},
    [COLUMN_FABRIC] = {"FABRIC", 8, false, false, 2},
    [COLUMN_GBPS] = {"GBIT/S", 6, true, false, 6},
    [COLUMN_PRICE] = {"$/GPU/H", 8, true, false, 0},
    [COLUMN_NODES] = {"STOCK", 6, true, false, 4},
    [COLUMN_MARKET] = {"MARKET", 9, false, false, 3},
    {NULL, 0, false, false, 0},
};

static const struct offer *offer_of(const void *data, size_t row)
{
    return offers_at(((const struct offers_view *)data)->data, row);
}

static double price_per_gpu(const struct offer *o)
{
    int64_t micro = offer_price_per_gpu_hour(o);
    return micro < 0 ? NAN : (double)micro / 1e6;
}

static void put_count(char text[LIST_CELL], int64_t n)
{
    if (n < 0)
        str_copy(text, LIST_CELL, "?");
    else
        snprintf(text, LIST_CELL, "%lld", (long long)n);
}

static void offers_cell(
    const void *data, size_t row, int column, char text[LIST_CELL], enum role *role)
{
    const struct offer *o = offer_of(data, row);
    char buf[SHOW_TEXT];
    const char *word = NULL;
    if (o->problem[0])
        *role = ROLE_DIM;
    switch (column) {
    case COLUMN_PROVIDER:
        word = o->provider;
        break;
    case COLUMN_REGION:
        word = o->region;
        break;
    case COLUMN_GPU:
        word = o->gpu;
        break;
    case COLUMN_COUNT:
        put_count(text, o->gpus_per_node);
        break;
    case COLUMN_MEMORY:
        snprintf(text, LIST_CELL, "%.0f GiB", (double)o->gpu_memory_bytes / (1 << 30));
        if (o->gpu_memory_bytes < 0)
            word = "?";
        break;
    case COLUMN_FABRIC:
        word = o->fabric == FABRIC_INFINIBAND ? "ib" : offer_fabric_name(o->fabric);
        break;
    case COLUMN_GBPS:
        if (o->inter_gbps_per_node >= 0)
            snprintf(text, LIST_CELL, "%.0f", o->inter_gbps_per_node);
        else
            word = "?";
        break;
    case COLUMN_PRICE:
        word = show_usd(buf, price_per_gpu(o)) + (isfinite(price_per_gpu(o)) ? 1 : 0);
        break;
    case COLUMN_NODES:
        put_count(text, o->nodes_available);
        break;
    default:
        word = offer_market_name(o->market);
    }
    if (word || !text[0])
        str_copy(text, LIST_CELL, word && *word ? word : "?");
}

static double column_number(const struct offer *o, int column)
{
    static const enum offer_field field[] = {[COLUMN_COUNT] = OFFER_GPUS_PER_NODE,
        [COLUMN_MEMORY] = OFFER_GPU_MEMORY,
        [COLUMN_GBPS] = OFFER_INTER_GBPS,
        [COLUMN_NODES] = OFFER_NODES_AVAILABLE};
    return column == COLUMN_PRICE ? price_per_gpu(o) : offer_number(o, field[column]);
}

static int offers_compare(const void *data, size_t a, size_t b, int column)
{
    const struct offer *x = offer_of(data, a), *y = offer_of(data, b);
    switch (column) {
    case COLUMN_PROVIDER:
        return strcmp(x->provider, y->provider);
    case COLUMN_REGION:
        return strcmp(x->region, y->region);
    case COLUMN_GPU:
        return strcmp(x->gpu, y->gpu);
    case COLUMN_FABRIC:
        return (int)x->fabric - (int)y->fabric;
    case COLUMN_MARKET:
        return (int)x->market - (int)y->market;
    default:
        return list_compare_numbers(column_number(x, column), column_number(y, column));
    }
}

static uint64_t offers_id(const void *data, size_t row)
{
    const struct offer *o = offer_of(data, row);
    return list_id(o->id) ^ list_id(o->provider) * 3 ^ list_id(o->region) * 5 ^
           (uint64_t)o->market * 7;
}

static bool offers_match(const void *data, size_t row)
{
    const struct offers_view *v = data;
    return !v->filter || filter_match(v->filter, offers_at(v->data, row));
}

static struct list_rows offer_rows(const struct offers_view *v)
{
    return (struct list_rows){.data = v,
        .n = v->data ? offers_count(v->data) : 0,
        .columns = columns,
        .id = offers_id,
        .cell = offers_cell,
        .compare = offers_compare,
        .matches = offers_match};
}

/* --- state --- */

void offers_view_init(struct offers_view *v)
{
    memset(v, 0, sizeof(*v));
    list_init(&v->list, COLUMN_PRICE, false);
}

void offers_view_release(struct offers_view *v)
{
    list_release(&v->list);
    shared_offers_unref(v->shared);
    filter_free(v->filter);
    v->shared = NULL;
    v->data = NULL;
    v->filter = NULL;
}

static double newest(const struct offers *l)
{
    double max = 0;
    for (size_t i = 0; i < offers_count(l); i++) {
        const char *at = offers_at(l, i)->fetched_at;
        double s = *at ? clock_parse_rfc3339(at) : 0;
        max = s > max ? s : max;
    }
    return max;
}

void offers_view_answer(struct offers_view *v, struct shared_offers *shared, const char *error)
{
    v->is_loading = false;
    str_copy(v->error, sizeof(v->error), error);
    if (!shared)
        return;
    shared_offers_unref(v->shared);
    v->shared = shared;
    v->data = shared_offers_list(shared);
    v->newest_s = newest(v->data);
    struct list_rows rows = offer_rows(v);
    list_update(&v->list, &rows);
}

static void filter_changed(struct ui *ui)
{
    struct offers_view *v = &ui->offers;
    struct err e = ERR_INIT;
    struct filter *fresh = NULL;
    v->filter_error[0] = '\0';
    if (filter_parse(&fresh, v->filter_text.text, &e)) {
        str_copy(v->filter_error, sizeof(v->filter_error), e.msg);
        return; /* half a term is being typed: go on showing what the last whole one let through */
    }
    filter_free(v->filter);
    v->filter = fresh;
    struct list_rows rows = offer_rows(v);
    list_update(&v->list, &rows);
}

/* --- drawing --- */

static void draw_title(const struct ui *ui, struct pane p)
{
    const struct offers_view *v = &ui->offers;
    char count[48], age[SHOW_TEXT], time[SHOW_TEXT];
    bool is_filtered = v->filter_text.len > 0 || ui->editing == &v->filter_text;
    int x = title_put(p, "Offers");
    if (v->data)
        x = text_putf(p, 0, x, ROLE_NORMAL, "%s", list_count(&v->list, count));
    if (v->is_loading)
        x = text_putf(p, 0, x, ROLE_DIM, "%sreading for %s", v->data ? ", " : "",
            show_elapsed(time, ui->now_s - v->since_s));
    else if (v->newest_s > 0)
        x = text_putf(p, 0, x, ROLE_DIM, ", %s", show_age(age, ui->now_s - v->newest_s));
    if (!is_filtered && v->source[0])
        x = text_putf(p, 0, x, ROLE_DIM, ", %s", v->source);
    pane_put(p, 0, x, ' ', ROLE_DIM);
    line_edit_draw_filter(&v->filter_text, p, x + 1, ui->editing == &v->filter_text);
}

/* Fields of the detail pane; what the table does not show comes first, so that it fits on a small
 * screen. */
static const struct {
    enum offer_field field;
    const char *label;
} details[] = {
    {OFFER_ID, "id"},
    {OFFER_REGION, "region"},
    {OFFER_PRICE, "node, $ per hour"},
    {OFFER_MAX_NODES, "nodes on a fabric"},
    {OFFER_NVLINK, "links in a node"},
    {OFFER_INTER_GBPS, "network, gigabit/s"},
    {OFFER_VCPUS, "CPUs"},
    {OFFER_RAM, "memory"},
    {OFFER_NVME, "local disk"},
    {OFFER_GPU_MEMORY, "memory of a GPU"},
    {OFFER_GRANULARITY, "billed by, s"},
    {OFFER_MINIMUM, "billed at least, s"},
    {OFFER_EGRESS, "egress, $ per GiB"},
    {OFFER_STORAGE, "$ per GiB month"},
    {OFFER_FETCHED_AT, "as of"},
    {OFFER_DRIVER, "driver"},
    {OFFER_NICS, "network cards"},
    {OFFER_ARCH, "architecture"},
    {OFFER_ISA, "instructions"},
    {OFFER_SETUP, "setup, $"},
    {OFFER_MIN_HOURS, "hours at least"},
    {OFFER_INTERRUPTIONS, "taken away per h"},
    {OFFER_NOTICE, "notice, s"},
    {OFFER_AVAILABLE_UNTIL, "available until"},
};

static void draw_field(const struct offer *o, size_t i, struct pane cell)
{
    enum offer_field f = details[i].field;
    enum provenance from = (enum provenance)o->provenance[f];
    char *text = offer_text(o, f);
    char buf[SHOW_TEXT];
    const char *shown = *text ? text : "?";
    if (*text && (f == OFFER_GPU_MEMORY || f == OFFER_RAM || f == OFFER_NVME))
        shown = show_bytes(buf, offer_number(o, f));
    text_put(cell, 0, 0, 19, ROLE_DIM, details[i].label);
    int x = text_putf(cell, 0, 19, ROLE_NORMAL, "%s", shown);
    if (from != PROVENANCE_REPORTED && *text)
        text_putf(cell, 0, x + 1, ROLE_DIM, "%s", provenance_name(from));
    free(text);
}

static void draw_detail(const struct offers_view *v, struct pane p)
{
    size_t row;
    if (!list_selected(&v->list, &row))
        return;
    const struct offer *o = offers_at(v->data, row);
    int y = 0, columns_here = p.r.w >= 150 ? 3 : p.r.w >= 70 ? 2 : 1;
    int width = (p.r.w - 1) / columns_here;
    if (o->problem[0])
        text_putf(p, y++, 1, ROLE_WARN, "cannot be planned: %s", o->problem);
    for (size_t i = 0; i < BASE_COUNT(details); i++) {
        int line = y + (int)i / columns_here, x = 1 + (int)i % columns_here * width;
        draw_field(o, i, pane_part(p, line, x, 1, width - 1));
    }
}

static void draw_nothing(const struct offers_view *v, struct pane p)
{
    if (v->error[0])
        text_wrap(p, 1, 2, 4, ROLE_BAD, v->error);
    else if (!v->data)
        text_wrap(p, 1, 2, 1, ROLE_DIM, "Reading the offers.");
    else if (offers_count(v->data) > 0)
        text_wrap(p, 1, 2, 2, ROLE_DIM, "No offer matches the filter. Press esc to clear it.");
    else
        text_wrap(p, 1, 2, 2, ROLE_DIM, "There are no offers.");
}

static struct split offers_split(const struct offers_view *v, struct rect body)
{
    bool is_alone = v->is_single || v->hides_detail;
    return screen_rows(body, is_alone ? body.h : body.h - 10, is_alone ? body.h : 8);
}

static void offers_arrange(struct ui *ui, struct rect body)
{
    struct offers_view *v = &ui->offers;
    v->is_single = body.h < SCREEN_FULL_ROWS - 3 || body.w < SCREEN_FULL_COLS;
    list_arrange(&v->list, offers_split(v, body).first.h - 1);
}

static void offers_draw(const struct ui *ui, struct pane body)
{
    const struct offers_view *v = &ui->offers;
    struct split s = offers_split(v, body.r);
    struct pane first = grid_pane(body.grid, s.first), title = grid_pane(body.grid, s.second_title);
    draw_title(ui, grid_pane(body.grid, s.first_title));
    bool is_detail = v->is_single && v->hides_detail; /* enter turns the single pane over */
    struct list_rows rows = offer_rows(v);
    if (v->list.n == 0)
        draw_nothing(v, first);
    else if (is_detail)
        draw_detail(v, first);
    else
        list_draw(&v->list, &rows, first, true);
    if (s.second.h == 0)
        return;
    title_put(title, "Offer");
    draw_detail(v, grid_pane(body.grid, s.second));
}

/* --- acting --- */

static void offers_act(struct ui *ui, enum action action)
{
    struct offers_view *v = &ui->offers;
    struct list_rows rows = offer_rows(v);
    if (list_act(&v->list, &rows, action))
        return;
    switch (action) {
    case ACT_ENTER:
        v->hides_detail = !v->hides_detail;
        break;
    case ACT_PLAN:
        ui_push(ui, VIEW_PLANS);
        break;
    case ACT_EDIT_JOB:
        ui_push(ui, VIEW_JOB);
        break;
    case ACT_FILTER:
        ui_edit(ui, &v->filter_text, filter_changed, NULL);
        break;
    case ACT_REFRESH:
        ui->wants |= WANT_OFFERS;
        break;
    default:
        break;
    }
}

static bool offers_back(struct ui *ui)
{
    struct offers_view *v = &ui->offers;
    bool had = line_edit_clear(&v->filter_text);
    if (had) {
        filter_changed(ui);
    } else if (v->is_single && v->hides_detail) {
        v->hides_detail = false;
        had = true;
    }
    return had;
}

static void offers_command(const struct ui *ui, struct str *out)
{
    const struct offers_view *v = &ui->offers;
    if (v->filter_error[0]) {
        str_addf(out, "filter: %s", v->filter_error);
        return;
    }
    struct argv a;
    argv_init(&a);
    argv_add(&a, "offers");
    ui_source_argv(ui, &a);
    argv_words(&a, v->filter_text.text);
    argv_text(&a, out);
    argv_release(&a);
}

const struct view_ops view_offers = {
    .arrange = offers_arrange,
    .draw = offers_draw,
    .act = offers_act,
    .command = offers_command,
    .back = offers_back,
};
