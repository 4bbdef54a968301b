#include "tui/term.h"

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"

/* Its header, <term.h>, defines a struct term and a macro for each capability. */
extern int setupterm(const char *name, int fd, int *status);

enum { PASTE_MAX = 64 << 10, KEY_PASTE_BEGIN = 2000, KEY_PASTE_END = 2001 };
static const double PASTE_SILENCE_S = 0.2;
static const char PASTE_ON[] = "\033[?2004h", PASTE_OFF[] = "\033[?2004l";

struct term {
    SCREEN *screen;
    WINDOW *keys; /* never drawn: reading from stdscr would refresh it */
    int signal_fd;
    int stderr_copy; /* the real standard error; -1 when it was not diverted */
    sigset_t old_mask;
    enum color_level colors;
    enum glyph_level glyphs;
    struct grid shown; /* what curses was last told */
    bool is_damaged;
    bool is_pasting;
    double last_paste_s;
    struct str paste;
};

/* --- leaving the terminal as it was, also from a crash: only bytes prepared beforehand --- */

static struct {
    struct termios modes;
    char off[256];
    size_t off_len;
    const char *farewell;
    volatile sig_atomic_t is_armed;
} rescue;

static void rescue_add(const char *bytes)
{
    size_t n = bytes && bytes != (const char *)-1 ? strlen(bytes) : 0;
    if (rescue.off_len + n > sizeof(rescue.off))
        return;
    memcpy(rescue.off + rescue.off_len, bytes ? bytes : "", n);
    rescue.off_len += n;
}

static void rescue_terminal(void)
{
    if (!rescue.is_armed)
        return;
    rescue.is_armed = 0;
    ssize_t n = write(STDOUT_FILENO, rescue.off, rescue.off_len);
    (void)n;
    tcsetattr(STDIN_FILENO, TCSANOW, &rescue.modes);
}

static void on_crash(int signal_number)
{
    static const char lead[] = "berth: crashed";
    bool had_screen = rescue.is_armed;
    rescue_terminal();
    if (had_screen) {
        ssize_t n = write(STDOUT_FILENO, lead, sizeof(lead) - 1);
        n = write(STDOUT_FILENO, rescue.farewell, strlen(rescue.farewell));
        n = write(STDOUT_FILENO, "\r\n", 2);
        (void)n;
    }
    raise(signal_number); /* SA_RESETHAND: now with its default effect */
}

static void rescue_arm(const char *farewell)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char stack[16384];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
    sigaltstack(&alternate, NULL);
    rescue.off_len = 0;
    rescue_add(PASTE_OFF);
    rescue_add(tigetstr("sgr0"));
    rescue_add(tigetstr("cnorm"));
    rescue_add(tigetstr("rmkx"));
    rescue_add(tigetstr("rmcup"));
    rescue.farewell = farewell ? farewell : "";
    struct sigaction act = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    for (size_t i = 0; i < BASE_COUNT(crashes); i++)
        sigaction(crashes[i], &act, NULL);
    static bool is_registered;
    if (!is_registered)
        atexit(rescue_terminal);
    is_registered = true;
    rescue.is_armed = 1;
}

/* --- start --- */

/* Everything that can refuse, before the first byte goes out. *name is the terminal to use. */
static enum rc check_terminal(const char **name, struct err *e)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return err_set(e, RC_USAGE,
            "the screens need a terminal on standard input and output; without one use commands "
            "such as 'berth offers' and 'berth plan' ('berth help' lists them)");
    *name = getenv("TERM");
    if (!*name || !**name)
        *name = "xterm-256color";
    int status;
    if (setupterm(*name, STDOUT_FILENO, &status) != OK && status == 0) {
        *name = "xterm-256color"; /* unknown here, but most terminals of today understand this */
        if (setupterm(*name, STDOUT_FILENO, &status) != OK)
            return err_set(e, RC_USAGE,
                "no description of terminal '%s' is installed; set TERM, "
                "or use commands ('berth help' lists them)",
                getenv("TERM"));
    }
    const char *move = tigetstr("cup");
    if (!move || move == (const char *)-1)
        return err_set(e, RC_USAGE,
            "terminal '%s' cannot place its cursor; set TERM, or use "
            "commands ('berth help' lists them)",
            *name);
    if (tcgetattr(STDIN_FILENO, &rescue.modes) != 0)
        return err_sys(e, RC_USAGE, "cannot read the terminal's settings");
    return RC_OK;
}

static enum glyph_level choose_glyphs(const struct term_options *o)
{
    if (o->is_ascii || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        return GLYPH_ASCII;
    const char *name = getenv("TERM");
    return name && strcmp(name, "linux") == 0 ? GLYPH_BLOCK : GLYPH_BRAILLE;
}

static enum color_level choose_colors(const struct term_options *o)
{
    const char *no = getenv("NO_COLOR");
    if (o->color == TUI_COLOR_NEVER || (o->color == TUI_COLOR_AUTO && no && *no))
        return COLOR_LEVEL_NONE;
    if (!has_colors() || start_color() != OK)
        return COLOR_LEVEL_NONE;
    use_default_colors();
    return COLORS >= 256 ? COLOR_LEVEL_256 : COLOR_LEVEL_16;
}

static void set_modes(struct term *t)
{
    cbreak();
    noecho();
    nonl();
    curs_set(0);
    if (!getenv("ESCDELAY"))
        set_escdelay(25); /* a lone ESC would hold every key for a second */
    t->keys = newpad(1, 1);
    keypad(t->keys, TRUE);
    nodelay(t->keys, TRUE);
    define_key("\033[200~", KEY_PASTE_BEGIN);
    define_key("\033[201~", KEY_PASTE_END);
    for (int role = 0; t->colors != COLOR_LEVEL_NONE && role < ROLE_COUNT; role++)
        init_pair((short)(role + 1), theme_look((enum role)role, t->colors).fg, -1);
    ssize_t n = write(STDOUT_FILENO, PASTE_ON, sizeof(PASTE_ON) - 1);
    (void)n;
}

/* Libraries print warnings; they must not land between the panes. */
static void divert_stderr(struct term *t, const char *path)
{
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fflush(stderr);
    t->stderr_copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

/* SIGTSTP stays with curses. Threads started later inherit the mask: only term reads these. */
static int open_signals(sigset_t *old)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    pthread_sigmask(SIG_BLOCK, &set, old);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

enum rc term_start(struct term **out, const struct term_options *o, struct err *e)
{
    *out = NULL;
    const char *name = NULL;
    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C");
    unsetenv("LINES"); /* they would freeze the size */
    unsetenv("COLUMNS");
    enum rc rc = check_terminal(&name, e);
    if (rc)
        return rc;
    struct term *t = base_calloc(1, sizeof(*t));
    t->stderr_copy = -1;
    str_init(&t->paste, PASTE_MAX);
    t->signal_fd = open_signals(&t->old_mask);
    rescue_arm(o->farewell);
    t->screen = newterm(name, stdout, stdin);
    if (!t->screen) {
        rescue.is_armed = 0;
        pthread_sigmask(SIG_SETMASK, &t->old_mask, NULL);
        close(t->signal_fd);
        free(t);
        return err_set(e, RC_USAGE, "cannot use terminal '%s'", name);
    }
    divert_stderr(t, o->log_path);
    t->glyphs = choose_glyphs(o);
    t->colors = choose_colors(o);
    set_modes(t);
    grid_init(&t->shown, t->glyphs);
    t->is_damaged = true;
    *out = t;
    return RC_OK;
}

void term_stop(struct term *t)
{
    if (!t)
        return;
    ssize_t n = write(STDOUT_FILENO, PASTE_OFF, sizeof(PASTE_OFF) - 1);
    (void)n;
    endwin();
    rescue.is_armed = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &rescue.modes); /* exactly the user's, not curses' idea */
    if (t->stderr_copy >= 0) {
        fflush(stderr);
        dup2(t->stderr_copy, STDERR_FILENO);
        close(t->stderr_copy);
    }
    delwin(t->keys);
    delscreen(t->screen);
    close(t->signal_fd);
    pthread_sigmask(SIG_SETMASK, &t->old_mask, NULL);
    grid_release(&t->shown);
    str_release(&t->paste);
    free(t);
}

/* --- keys and signals --- */

int term_key_fd(const struct term *t)
{
    (void)t;
    return STDIN_FILENO;
}

int term_signal_fd(const struct term *t)
{
    return t->signal_fd;
}

int term_timeout_ms(const struct term *t)
{
    if (!t->is_pasting)
        return -1;
    double left_s = t->last_paste_s + PASTE_SILENCE_S - clock_now_s();
    return left_s > 0 ? (int)(left_s * 1000) + 1 : 0;
}

static const struct {
    int curses, ours;
} key_map[] = {
    {KEY_UP, K_UP},
    {KEY_DOWN, K_DOWN},
    {KEY_LEFT, K_LEFT},
    {KEY_RIGHT, K_RIGHT},
    {KEY_PPAGE, K_PAGE_UP},
    {KEY_NPAGE, K_PAGE_DOWN},
    {KEY_HOME, K_HOME},
    {KEY_END, K_END},
    {KEY_DC, K_DELETE},
    {KEY_BTAB, K_BACK_TAB},
    {KEY_BACKSPACE, K_BACKSPACE},
    {KEY_ENTER, K_ENTER},
    {KEY_F(1), K_F1},
    {KEY_F(5), K_F5},
    {KEY_F(10), K_F10},
};

/* 0 for what the screens have no use for: an unknown sequence is swallowed whole. */
static int translate(int kind, wint_t ch)
{
    if (kind == OK)
        return ch == '\n' ? K_ENTER : ch == '\b' ? K_BACKSPACE : (int)ch;
    for (size_t i = 0; i < BASE_COUNT(key_map); i++) {
        if (key_map[i].curses == (int)ch)
            return key_map[i].ours;
    }
    return 0;
}

static void add_pasted(struct term *t, wint_t ch)
{
    char bytes[MB_LEN_MAX];
    mbstate_t state = {0};
    size_t n = wcrtomb(bytes, (wchar_t)ch, &state);
    if (n != (size_t)-1)
        str_addn(&t->paste, bytes, n);
    t->last_paste_s = clock_now_s();
}

/* True when the descriptor has no other end any more: reading gives an end or an error at once. */
static bool is_hung_up(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

bool term_next_key(struct term *t, int *key, bool *is_gone)
{
    *is_gone = false;
    for (;;) {
        wint_t ch;
        int kind = wget_wch(t->keys, &ch);
        if (kind == ERR) {
            *is_gone = is_hung_up();
            if (!t->is_pasting || term_timeout_ms(t) > 0)
                return false;
            kind = KEY_CODE_YES; /* the end of this paste got lost */
            ch = KEY_PASTE_END;
        }
        if (kind == KEY_CODE_YES && ch == KEY_PASTE_BEGIN) {
            t->is_pasting = true;
            t->last_paste_s = clock_now_s();
            str_reset(&t->paste);
        } else if (kind == KEY_CODE_YES && ch == KEY_PASTE_END) {
            t->is_pasting = false;
            *key = K_PASTE;
            return true;
        } else if (t->is_pasting) {
            if (kind == OK)
                add_pasted(t, ch);
        } else if ((*key = translate(kind, ch))) {
            return true;
        }
    }
}

const char *term_pasted(const struct term *t)
{
    return str_text(&t->paste);
}

static void apply_size(struct term *t)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
        resizeterm(size.ws_row, size.ws_col);
    t->is_damaged = true;
}

enum term_signal term_next_signal(struct term *t)
{
    struct signalfd_siginfo info;
    if (read(t->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return TERM_SIGNAL_NONE;
    if (info.ssi_signo == SIGWINCH) {
        apply_size(t);
        return TERM_SIGNAL_RESIZE;
    }
    if (info.ssi_signo == SIGHUP)
        return TERM_SIGNAL_GONE;
    return info.ssi_signo == SIGINT ? TERM_SIGNAL_INTERRUPT : TERM_SIGNAL_END;
}

/* --- drawing --- */

void term_size(const struct term *t, int *rows, int *cols)
{
    (void)t;
    *rows = LINES;
    *cols = COLS;
}

enum glyph_level term_glyphs(const struct term *t)
{
    return t->glyphs;
}

void term_damage(struct term *t)
{
    t->is_damaged = true;
}

static attr_t attributes(const struct term *t, enum role role)
{
    struct look look = theme_look(role, t->colors);
    return (look.is_bold ? A_BOLD : 0) | (look.is_reverse ? A_REVERSE : 0) |
           (look.is_underlined ? A_UNDERLINE : 0);
}

/* The library must agree with the grid on the width, or the rest of the row would shift. */
static wchar_t agreed(const struct cell *c)
{
    return c->cp < 127 || wcwidth((wchar_t)c->cp) == c->columns ? (wchar_t)c->cp : L'?';
}

static void show_row(const struct term *t, const struct grid *g, int y)
{
    for (int x = 0; x < g->cols; x++) {
        const struct cell *c = grid_at(g, y, x);
        if (c->cp == 0)
            continue;
        short pair = t->colors == COLOR_LEVEL_NONE ? 0 : (short)(c->role + 1);
        attr_t attr = attributes(t, (enum role)c->role);
        wchar_t text[2] = {agreed(c), 0};
        cchar_t out;
        setcchar(&out, text, attr, pair, NULL);
        mvadd_wch(y, x, &out);
        if (c->columns == 2 && text[0] == L'?')
            mvadd_wch(y, x + 1, &out);
    }
}

static bool is_row_equal(const struct grid *a, const struct grid *b, int y)
{
    return memcmp(grid_at(a, y, 0), grid_at(b, y, 0), (size_t)a->cols * sizeof(struct cell)) == 0;
}

void term_show(struct term *t, const struct grid *g)
{
    bool is_new = t->is_damaged || g->rows != t->shown.rows || g->cols != t->shown.cols;
    if (is_new) {
        grid_reset(&t->shown, g->rows, g->cols);
        werase(stdscr);
        clearok(curscr, t->is_damaged);
        t->is_damaged = false;
    }
    for (int y = 0; y < g->rows && y < LINES; y++) {
        if (!is_new && is_row_equal(g, &t->shown, y))
            continue;
        show_row(t, g, y);
        memcpy(&t->shown.cell[(size_t)y * (size_t)g->cols], grid_at(g, y, 0),
            (size_t)g->cols * sizeof(struct cell));
    }
    curs_set(g->cursor_y >= 0);
    if (g->cursor_y >= 0)
        wmove(stdscr, g->cursor_y, g->cursor_x);
    wnoutrefresh(stdscr);
    doupdate();
}

const char *term_library_version(void)
{
    return curses_version();
}
