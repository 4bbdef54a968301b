/* The program on a terminal in memory, cell by cell: colours, widths, cursor, time to an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vterm.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { ROWS = 24, COLS = 80, QUIET_MS = 150, KEY_ESC = 27 };

struct terminal {
    pid_t pid;
    int fd;
    VTerm *vt;
    VTermScreen *screen;
};

static char offers_path[256];

/* Feed what arrives into the terminal until nothing came for quiet_ms. */
static void settle(struct terminal *t, int quiet_ms)
{
    char buf[65536];
    struct pollfd p = {t->fd, POLLIN, 0};
    while (poll(&p, 1, quiet_ms) > 0) {
        ssize_t n = read(t->fd, buf, sizeof(buf));
        if (n <= 0)
            return;
        vterm_input_write(t->vt, buf, (size_t)n);
    }
}

static VTermScreenCell cell(const struct terminal *t, int row, int col)
{
    VTermScreenCell c;
    VTermPos pos = {row, col};
    memset(&c, 0, sizeof(c));
    vterm_screen_get_cell(t->screen, pos, &c);
    return c;
}

/* Row and column of an ASCII text on the screen; false when it is not there. */
static bool find(const struct terminal *t, const char *text, int *row, int *col)
{
    for (*row = 0; *row < ROWS; ++*row) {
        for (*col = 0; *col + (int)strlen(text) <= COLS; ++*col) {
            size_t i = 0;
            while (text[i] && cell(t, *row, *col + (int)i).chars[0] == (uint32_t)text[i])
                i++;
            if (!text[i])
                return true;
        }
    }
    return false;
}

static void run_child(const char *term, const char *no_color)
{
    const char *build = getenv("BUILD");
    char *program = base_printf("%s/berth", build ? build : "build");
    setenv("TERM", term, 1);
    if (no_color)
        setenv("NO_COLOR", no_color, 1);
    else
        unsetenv("NO_COLOR");
    unsetenv("ESCDELAY");
    execl(program, "berth", "tui", "--offers", offers_path, (char *)NULL);
    _exit(127);
}

static void start(struct terminal *t, const char *term, const char *no_color)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLS};
    t->pid = forkpty(&t->fd, NULL, NULL, &size);
    assert_true(t->pid >= 0);
    if (t->pid == 0)
        run_child(term, no_color);
    t->vt = vterm_new(ROWS, COLS);
    vterm_set_utf8(t->vt, 1);
    t->screen = vterm_obtain_screen(t->vt);
    vterm_screen_enable_altscreen(t->screen, 1);
    vterm_screen_reset(t->screen, 1);
    for (int i = 0, row, col; i < 200 && !find(t, "first-offer", &row, &col); i++)
        settle(t, 50); /* a sanitized build takes its time */
    settle(t, 50);
}

static void press(struct terminal *t, const char *keys)
{
    assert_int_equal(write(t->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
    settle(t, QUIET_MS);
}

static int stop(struct terminal *t)
{
    int status = 0;
    press(t, "qqq");
    kill(t->pid, SIGTERM);
    waitpid(t->pid, &status, 0);
    close(t->fd);
    vterm_free(t->vt);
    return status;
}

static VTermScreenCell cell_of(const struct terminal *t, const char *text)
{
    int row, col;
    if (!find(t, text, &row, &col))
        fail_msg("'%s' is not on the screen", text);
    return cell(t, row, col);
}

static int coloured_cells(const struct terminal *t)
{
    int n = 0;
    for (int row = 0; row < ROWS; row++) {
        for (int col = 0; col < COLS; col++) {
            VTermScreenCell c = cell(t, row, col);
            n += !VTERM_COLOR_IS_DEFAULT_FG(&c.fg);
        }
    }
    return n;
}

static void selected_row_is_reversed_and_heads_are_bold(void **state)
{
    (void)state;
    struct terminal t;
    start(&t, "xterm-256color", NULL);
    assert_true(cell_of(&t, "first-offer").attrs.reverse);
    assert_false(cell_of(&t, "second").attrs.reverse);
    assert_true(cell_of(&t, "PROVIDER").attrs.bold);
    press(&t, "j");
    assert_false(cell_of(&t, "first-offer").attrs.reverse);
    assert_true(cell_of(&t, "second").attrs.reverse);
    stop(&t);
}

static void colour_levels_follow_terminal_and_wish(void **state)
{
    (void)state;
    static const struct {
        const char *term, *no_color;
        bool has_colours;
        int key_colour; /* of the keys in the footer */
    } cases[] = {{"xterm-256color", NULL, true, 44}, {"xterm", NULL, true, 6},
        {"xterm-256color", "1", false, 0}, {"vt100", NULL, false, 0}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct terminal t;
        start(&t, cases[i].term, cases[i].no_color);
        VTermScreenCell key = cell_of(&t, "q quit");
        assert_int_equal(coloured_cells(&t) > 0, cases[i].has_colours);
        if (cases[i].has_colours) {
            assert_true(VTERM_COLOR_IS_INDEXED(&key.fg));
            assert_int_equal(key.fg.indexed.idx, cases[i].key_colour);
        }
        assert_true(cell_of(&t, "first-offer").attrs.reverse); /* seen without colour, too */
        stop(&t);
    }
}

static void wide_names_do_not_shift_their_row(void **state)
{
    (void)state;
    struct terminal t;
    int row, plain, wide;
    start(&t, "xterm-256color", NULL);
    assert_true(find(&t, "h100-sxm", &row, &plain));
    assert_true(find(&t, "h200-sxm", &row, &wide));
    assert_int_equal(cell(&t, row, 1).chars[0], 0x6771);
    assert_int_equal(cell(&t, row, 1).width, 2);
    assert_int_equal(plain, wide);
    stop(&t);
}

static void cursor_shows_only_where_text_is_typed(void **state)
{
    (void)state;
    struct terminal t;
    VTermPos pos;
    start(&t, "xterm-256color", NULL);
    press(&t, "/h100");
    vterm_state_get_cursorpos(vterm_obtain_state(t.vt), &pos);
    assert_int_equal(cell(&t, pos.row, pos.col - 1).chars[0], '0');
    assert_int_equal(cell(&t, pos.row, pos.col - 4).chars[0], 'h');
    stop(&t);
}

static void a_lone_escape_is_answered_long_before_a_second(void **state)
{
    (void)state;
    struct terminal t;
    const char escape[] = {KEY_ESC};
    start(&t, "xterm-256color", NULL);
    press(&t, "/");
    double begin_s = clock_now_s();
    struct pollfd p = {t.fd, POLLIN, 0};
    assert_int_equal(write(t.fd, escape, 1), 1);
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_true(clock_now_s() - begin_s < 0.5); /* 25 ms, and room for a busy machine */
    stop(&t);
}

static void leaving_shows_the_screen_that_was_there_before(void **state)
{
    (void)state;
    struct terminal t;
    int row, col;
    start(&t, "xterm-256color", NULL);
    assert_true(find(&t, "PROVIDER", &row, &col));
    press(&t, "q");
    assert_false(find(&t, "PROVIDER", &row, &col));
    int status = stop(&t);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void write_offers(const char *folder)
{
    static const char csv[] =
        "provider,name,gpu,gpus,gpu_mem,nodes,fabric,inter_gbps,vcpus,ram,nvme,price,price_unit,"
        "market,region\n"
        "first-offer,a,H100 SXM,8,80,1,ethernet,100,96,1024,4,1.00,usd/gpu/h,on-demand,r\n"
        "second,b,A100 80GB,8,80,1,ethernet,100,96,1024,4,2.00,usd/gpu/h,on-demand,r\n"
        "\xe6\x9d\xb1\xe4\xba\xac,c,H200,8,141,1,ethernet,100,96,1024,4,3.00,usd/gpu/h,spot,r\n";
    snprintf(offers_path, sizeof(offers_path), "%s/offers.csv", folder);
    int fd = open(offers_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n = write(fd, csv, sizeof(csv) - 1);
    if (fd < 0 || n != (ssize_t)sizeof(csv) - 1)
        exit(1);
    close(fd);
}

int main(void)
{
    char folder[] = "/tmp/berth-cells.XXXXXX";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selected_row_is_reversed_and_heads_are_bold),
        cmocka_unit_test(colour_levels_follow_terminal_and_wish),
        cmocka_unit_test(wide_names_do_not_shift_their_row),
        cmocka_unit_test(cursor_shows_only_where_text_is_typed),
        cmocka_unit_test(a_lone_escape_is_answered_long_before_a_second),
        cmocka_unit_test(leaving_shows_the_screen_that_was_there_before),
    };
    if (!mkdtemp(folder))
        return 1;
    setenv("BERTH_HOME", folder, 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("LSAN_OPTIONS", "suppressions=tests/lib/lsan.supp:print_suppressions=0", 1);
    write_offers(folder);
    int bad = cmocka_run_group_tests_name("screen/cells", tests, NULL, NULL);
    char *clean = base_printf("rm -rf '%s'", folder);
    bad += system(clean) != 0;
    free(clean);
    return bad != 0;
}
