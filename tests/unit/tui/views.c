/* Screens drawn into memory from fixed data, compared with golden text. `BERTH_GOLDEN=1` rewrites
 * the golden files, which are then to be read as text. */
#include "tui/ui.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"
#include "tui/plan_data.h"
#include "tui/plan_search.h"
#include "tui/term.h"

#define DATA "tests/unit/tui/data/"

static const struct tui_options options = {.plan_path = "/state/plan.json"};

static void fill_offers(struct ui *ui)
{
    static const char csv[] =
        "provider,name,gpu,gpus,gpu_mem,nodes,fabric,inter_gbps,vcpus,ram,nvme,price,price_unit,"
        "market,region\n"
        "acme,big-8,H100 "
        "SXM,8,80,12,infiniband,3200,192,2048,30,16.80,usd/node/h,on-demand,eu-north\n"
        "acme,big-8s,H100 SXM,8,80,4,infiniband,3200,192,2048,30,2.19,usd/gpu/h,spot,us-east\n"
        "birch,h2,H200,8,141,2,roce,3200,192,2048,30,2.85,usd/gpu/h,on-demand,us-west\n"
        "\xe6\x9d\xb1\xe4\xba\xac,a8,A100 "
        "80GB,8,80,,ethernet,100,96,1024,4,1.10,usd/gpu/h,reserved,jp\n"
        "lab,rack-12,RTX 4090,4,24,3,ethernet,25,64,256,2,0.10,usd/gpu/h,owned,office\n";
    struct err e = ERR_INIT;
    struct source_input in = {.text = csv, .len = sizeof(csv) - 1, .is_reproducible = true};
    struct offers *list = offers_new();
    if (SOURCE_OFFERS_CSV.read(list, &in, &e))
        fail_msg("%s", e.msg);
    offers_view_answer(&ui->offers, shared_offers_new(list), "");
    str_copy(ui->offers.source, sizeof(ui->offers.source), "nodes.csv");
    ui->offers.newest_s = ui->now_s - 720;
}

static struct plan_list *plans;

static void fill_plans(struct ui *ui)
{
    struct json *doc = NULL;
    struct err e = ERR_INIT;
    if (json_read(&doc, DATA "plan_list.json", 1 << 24, &e))
        fail_msg("%s", e.msg);
    job_form_summary(&ui->job, ui->plans.asked, sizeof(ui->plans.asked));
    plans_view_show(&ui->plans, plans = plan_list_from_json(doc), "", 0.412);
    json_free(doc);
}

static struct ui *make_ui(void)
{
    struct ui *ui = base_calloc(1, sizeof(*ui));
    ui_init(ui, &options);
    ui->now_s = 1796000000;
    line_edit_set(&ui->job.field[JOB_DEADLINE], "10h");
    fill_offers(ui);
    fill_plans(ui);
    return ui;
}

static void free_ui(struct ui *ui)
{
    ui_release(ui);
    plan_list_free(plans);
    free(ui);
}

static void press(struct ui *ui, const char *keys)
{
    for (; *keys; keys++)
        ui_key(ui, *keys == '\n'     ? K_ENTER
                   : *keys == '\033' ? K_ESC
                   : *keys == '\t'   ? K_TAB
                                     : *keys);
}

static char *picture(struct ui *ui, int rows, int cols, enum glyph_level glyphs)
{
    struct grid g;
    struct str s = STR_INIT;
    grid_init(&g, glyphs);
    grid_reset(&g, rows, cols);
    ui_arrange(ui, rows, cols);
    ui_draw(ui, &g);
    for (int y = 0; y < rows; y++) {
        char *row = grid_row_text(&g, y);
        str_addf(&s, "%s\n", row);
        free(row);
    }
    grid_release(&g);
    return str_steal(&s);
}

static void is_golden(struct ui *ui, int rows, int cols, const char *name)
{
    char path[128];
    struct str want = STR_INIT;
    struct err e = ERR_INIT;
    char *have = picture(ui, rows, cols, GLYPH_BRAILLE);
    snprintf(path, sizeof(path), DATA "%s_%dx%d.txt", name, cols, rows);
    if (getenv("BERTH_GOLDEN") && file_write(path, have, strlen(have), 0644, &e))
        fail_msg("%s", e.msg);
    if (file_read(&want, path, 1 << 20, &e))
        fail_msg("%s", e.msg);
    if (strcmp(have, str_text(&want)) != 0)
        fail_msg("%s differs; is:\n%s", path, have);
    str_release(&want);
    free(have);
}

static void offers_look_as_intended(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    is_golden(ui, 24, 80, "offers");
    is_golden(ui, 50, 200, "offers");
    press(ui, "/price<2.5 !spot\n");
    is_golden(ui, 24, 80, "offers_filtered");
    free_ui(ui);
}

static void job_looks_as_intended(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    press(ui, "2j\n");
    ui_key(ui, K_CTRL_U);
    press(ui, "ten");
    is_golden(ui, 24, 80, "job");
    is_golden(ui, 50, 200, "job");
    free_ui(ui);
}

static void plans_look_as_intended(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    press(ui, "3j");
    is_golden(ui, 24, 80, "plans");
    is_golden(ui, 50, 200, "plans");
    press(ui, "x");
    is_golden(ui, 24, 80, "rejected");
    free_ui(ui);
}

static void help_looks_as_intended(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    press(ui, "3?");
    is_golden(ui, 24, 80, "help");
    is_golden(ui, 50, 200, "help");
    free_ui(ui);
}

/* A run of 400 of 1,000 steps whose loss falls with noise and one spike. */
static void fill_run(struct ui *ui)
{
    struct run_news news = {.has_row = true, .serial = 1};
    struct str log = STR_INIT;
    struct run_row *r = &news.row;
    *r = (struct run_row){.id = "20261130-083000-abcd",
        .state = RUN_RUNNING,
        .model = "llama-3.1-8b",
        .attempt = 1,
        .hosts = 2,
        .ranks = 16,
        .step = 400,
        .steps = 1000,
        .loss = 2.5,
        .created_s = ui->now_s - 9000,
        .launched_s = ui->now_s - 8600,
        .money = {33600000, ui->now_s - 8600, 0},
        .predicted_step_s = 21,
        .predicted_tokens_per_s = 99000,
        .predicted_bytes = 79652405248.0,
        .checkpoint_step = 350};
    news.metrics = base_calloc(400, sizeof(*news.metrics));
    for (int i = 0; i < 400; i++) {
        struct record_metrics *m = &news.metrics[news.n_metrics++];
        record_metrics_init(m);
        m->step = i + 1;
        m->wall_s = ui->now_s - (400 - i) * 21.0 - 3 - (i < 100 ? 36000 : 0); /* stopped once */
        m->step_seconds = 21;
        m->loss = 2 + 8.0 / (1 + i / 40.0) + (i * 37 % 17) / 40.0 + (i == 250 ? 4 : 0);
        m->grad_norm = 1 + (i * 53 % 29) / 50.0;
        m->lr = 3e-4;
        m->tokens_per_second = 90000 + i * 61 % 97 * 50;
        m->memory_bytes = 78000000000;
        str_addf(&log, "rank-%d  step %d loss %.3f\n", i % 16, i + 1, m->loss);
    }
    str_add(&log, "rank-3  \033[31mwarning\033[0m: a line with\ttabs and \x9b escapes\n");
    news.log = str_steal(&log);
    run_view_open(ui, r->id);
    run_view_news(ui, &news);
    free(news.metrics);
    free(news.log);
}

static void fill_runs(struct ui *ui)
{
    struct run_rows *rows = base_calloc(1, sizeof(*rows));
    rows->n = 3;
    rows->row = base_calloc(3, sizeof(*rows->row));
    rows->row[0] = (struct run_row){.id = "20261130-083000-abcd",
        .state = RUN_RUNNING,
        .model = "llama-3.1-8b",
        .hosts = 2,
        .step = 400,
        .steps = 1000,
        .loss = 2.5,
        .launched_s = ui->now_s - 8600,
        .money = {33600000, ui->now_s - 8600, 0},
        .checkpoint_step = -1};
    rows->row[1] = (struct run_row){.id = "20261129-120000-zzzz",
        .state = RUN_FAILED,
        .model = "gpt2",
        .hosts = 1,
        .step = 12,
        .steps = 100,
        .loss = NAN,
        .money = {.micro_usd_per_hour = -1},
        .launched_s = ui->now_s - 90000,
        .ended_s = ui->now_s - 89000,
        .checkpoint_step = 10,
        .sentence = "rank 3 on node2 ended with signal 9"};
    rows->row[2] = (struct run_row){.id = "20261128-070000-qqqq",
        .state = RUN_FINISHED,
        .model = "smollm2-135m",
        .hosts = 4,
        .step = 5000,
        .steps = 5000,
        .loss = 3.125,
        .launched_s = ui->now_s - 200000,
        .ended_s = ui->now_s - 120000,
        .money = {8000000, ui->now_s - 200000, 0},
        .checkpoint_step = 5000};
    runs_view_answer(&ui->runs, rows);
}

static void run_looks_as_intended(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    fill_run(ui);
    press(ui, "5");
    is_golden(ui, 24, 80, "run");
    is_golden(ui, 50, 200, "run");
    press(ui, "X");
    is_golden(ui, 24, 80, "run_stop");
    free_ui(ui);
}

/* The run has ended as its record says, the command that stopped it has not. */
static void resume_is_not_offered_while_stop_is_at_work(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    fill_run(ui);
    ui->run.row.money.micro_usd_per_hour = 0; /* else it must be named */
    press(ui, "5Xyes\n");
    assert_int_equal(ui->acting.what, ACT_STOP);
    ui->run.row.state = RUN_CANCELLED;
    press(ui, "R");
    assert_false(ui->question.is_open);
    assert_non_null(strstr(ui->note, "is still running: wait for it"));
    acting_end(ui, 0, "");
    press(ui, "R");
    assert_true(ui->question.is_open);
    free_ui(ui);
}

static void runs_look_as_intended(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    fill_runs(ui);
    press(ui, "6j");
    is_golden(ui, 24, 80, "runs");
    is_golden(ui, 50, 200, "runs");
    free_ui(ui);
}

static void launch_looks_as_intended(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    press(ui, "3l");
    assert_non_null(strstr(ui->note, "Berth cannot launch this plan: the engine"));
    assert_int_equal(ui_view(ui), VIEW_PLANS);
    plans->row[0].is_launchable = true; /* as if the engine had the device */
    press(ui, "l\nhosts.txt\t\033");
    is_golden(ui, 24, 80, "launch");
    ui->plans.is_writing = false;
    press(ui, "L");
    is_golden(ui, 24, 80, "launch_question");
    press(ui, "no\n");
    assert_int_equal(ui->acting.what, ACT_NONE);
    press(ui, "Lyes\n");
    assert_int_equal(ui->acting.what, ACT_LAUNCH);
    assert_true(ui->acting.is_running && ui->acting.is_kept);
    struct str command = STR_INIT;
    argv_text(&ui->acting.argv, &command);
    assert_string_equal(str_text(&command),
        "berth launch /state/plan.json --hosts hosts.txt --max-usd 629 --detach --yes");
    str_release(&command);
    acting_lines(&ui->acting, "run 20261130-083000-abcd goes on on 4 nodes\n");
    acting_end(ui, 0, "");
    assert_string_equal(ui->run.id, "20261130-083000-abcd");
    assert_int_equal(ui_view(ui), VIEW_RUN);
    free_ui(ui);
}

static void log_stays_in_place_while_it_is_read(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    fill_run(ui);
    press(ui, "5kk");
    free(picture(ui, 24, 80, GLYPH_BLOCK));
    char *before = picture(ui, 24, 80, GLYPH_BLOCK);
    char log[] = "rank-0  one more\nrank-0  and another\n";
    struct run_news news = {.log = log};
    run_view_news(ui, &news);
    char *after = picture(ui, 24, 80, GLYPH_BLOCK);
    assert_string_equal(before, after);
    press(ui, "f");
    char *followed = picture(ui, 24, 80, GLYPH_BLOCK);
    assert_non_null(strstr(followed, "and another"));
    free(before);
    free(after);
    free(followed);
    free_ui(ui);
}

/* Every key in every view at every kind of size; the sanitizers watch. */
static void any_keys_at_any_size_draw_something(void **state)
{
    (void)state;
    static const int keys[] = {'1', '2', '3', '4', '5', '6', '?', 'q', K_ESC, K_ENTER, K_TAB, K_UP,
        K_DOWN, K_PAGE_UP, K_PAGE_DOWN, K_HOME, K_END, K_LEFT, K_RIGHT, 's', 'S', '/', 'x', 'p',
        'l', 'e', 'w', 'r', 'c', 'L', 'o', 'y', 'f', 'X', 'R', 'a', '8', ' ', K_BACKSPACE, 0x6771,
        K_CTRL_U, K_BACK_TAB, K_F1};
    static const int sizes[][2] = {
        {24, 80}, {10, 40}, {1, 1}, {50, 200}, {11, 300}, {100, 41}, {9, 39}, {30, 79}};
    struct ui *ui = make_ui();
    unsigned seed = 1;
    fill_run(ui);
    fill_runs(ui);
    for (int i = 0; i < 10000; i++) {
        seed = seed * 1664525u + 1013904223u;
        ui_key(ui, keys[(seed >> 16) % BASE_COUNT(keys)]);
        ui->is_leaving = false;
        ui->wants = 0;
        ui->acting.is_running = false;
        if (i % 10 == 0) {
            const int *size = sizes[(seed >> 8) % BASE_COUNT(sizes)];
            free(picture(ui, size[0], size[1], (enum glyph_level)(i / 10 % 3)));
        }
    }
    free_ui(ui);
}

static void escape_goes_out_one_level_and_never_leaves(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    press(ui, "3?/plan");
    assert_int_equal(ui_mode(ui), MODE_EDIT);
    press(ui, "\033");
    assert_int_equal(ui_view(ui), VIEW_HELP);
    press(ui, "\033");
    assert_int_equal(ui_view(ui), VIEW_PLANS);
    press(ui, "\033\033\033");
    assert_false(ui->is_leaving);
    press(ui, "q");
    assert_true(ui->is_leaving);
    free_ui(ui);
}

static int asked;
static void agreed(struct ui *ui)
{
    (void)ui;
    asked++;
}

static void a_question_needs_the_whole_word(void **state)
{
    (void)state;
    struct ui *ui = make_ui();
    static const char *const no[] = {"\n", "y\033", "no\n", "yess\n", "q\n", "YES\n"};
    for (size_t i = 0; i < BASE_COUNT(no); i++) {
        ui_ask(ui, "Launch", "It costs $1.", "yes", agreed);
        press(ui, no[i]);
        assert_false(ui->question.is_open);
        assert_int_equal(asked, 0);
    }
    ui_ask(ui, "Launch", "It costs $1.", "yes", agreed);
    ui_paste(ui, "yes\n");
    assert_true(ui->question.is_open);
    press(ui, "yes\n");
    assert_int_equal(asked, 1);
    free_ui(ui);
}

int test_views(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offers_look_as_intended),
        cmocka_unit_test(job_looks_as_intended),
        cmocka_unit_test(plans_look_as_intended),
        cmocka_unit_test(help_looks_as_intended),
        cmocka_unit_test(run_looks_as_intended),
        cmocka_unit_test(resume_is_not_offered_while_stop_is_at_work),
        cmocka_unit_test(runs_look_as_intended),
        cmocka_unit_test(launch_looks_as_intended),
        cmocka_unit_test(log_stays_in_place_while_it_is_read),
        cmocka_unit_test(any_keys_at_any_size_draw_something),
        cmocka_unit_test(escape_goes_out_one_level_and_never_leaves),
        cmocka_unit_test(a_question_needs_the_whole_word),
    };
    return cmocka_run_group_tests_name("tui/views", tests, NULL, NULL);
}
