#include "tui/keys.h"

#include "base/alloc.h"
#include "base/str.h"
#include "tui/term.h"
#include "tui/text_put.h"

/* clang-format off */
static const struct binding table[] = {
    /* every view */
    {VIEW_ANY, ACT_HELP, '?', K_F1, 2, false, "help", "the keys of this view; again: all keys", "berth help"},
    {VIEW_ANY, ACT_QUIT, 'q', K_F10, 1, false, "quit", "close this view; in the first one: leave. Runs go on", NULL},
    {VIEW_ANY, ACT_BACK, K_ESC, 0, 0, false, NULL, "one level out; never leaves the program", NULL},
    {VIEW_ANY, ACT_SHOW_OFFERS, '1', 0, 0, false, NULL, "what can be rented", "berth offers"},
    {VIEW_ANY, ACT_SHOW_JOB, '2', 0, 0, false, NULL, "what is to be trained", "berth help job"},
    {VIEW_ANY, ACT_SHOW_PLANS, '3', 0, 0, false, NULL, "the best ways to train it", "berth plan"},
    {VIEW_ANY, ACT_SHOW_LAUNCH, '4', 0, 0, false, NULL, "start the chosen plan", "berth launch plan.json --hosts FILE"},
    {VIEW_ANY, ACT_SHOW_RUN, '5', 0, 0, false, NULL, "one run as it goes", "berth attach RUN"},
    {VIEW_ANY, ACT_SHOW_RUNS, '6', 0, 0, false, NULL, "all runs", "berth runs"},
    {VIEW_ANY, ACT_NEXT_VIEW, K_TAB, 0, 0, false, NULL, "next view", NULL},
    {VIEW_ANY, ACT_PREVIOUS_VIEW, K_BACK_TAB, 0, 0, false, NULL, "previous view", NULL},
    {VIEW_ANY, ACT_UP, K_UP, 'k', 0, false, NULL, "up", NULL},
    {VIEW_ANY, ACT_DOWN, K_DOWN, 'j', 0, false, NULL, "down", NULL},
    {VIEW_ANY, ACT_PAGE_UP, K_PAGE_UP, 'b', 0, false, NULL, "one page up", NULL},
    {VIEW_ANY, ACT_PAGE_DOWN, K_PAGE_DOWN, ' ', 0, false, NULL, "one page down", NULL},
    {VIEW_ANY, ACT_FIRST, K_HOME, 'g', 0, false, NULL, "to the start", NULL},
    {VIEW_ANY, ACT_LAST, K_END, 'G', 0, false, NULL, "to the end", NULL},
    {VIEW_ANY, ACT_COMMAND, '!', 0, 0, false, NULL, "the whole command that does what this view shows, to be copied", NULL},
    {VIEW_ANY, ACT_REPAINT, K_CTRL_L, 0, 0, false, NULL, "paint the screen anew", NULL},

    {VIEW_OFFERS, ACT_ENTER, K_ENTER, 0, 5, false, "details", "all that is known of the offer, or the list alone", "berth offers --json"},
    {VIEW_OFFERS, ACT_PLAN, 'p', 0, 3, false, "plan", "the best plans for the job", "berth plan"},
    {VIEW_OFFERS, ACT_EDIT_JOB, 'e', 0, 4, false, "edit job", "change what is to be trained", "berth plan --model NAME --tokens N"},
    {VIEW_OFFERS, ACT_FILTER, '/', 0, 6, false, "filter", "show only offers that match, such as: h100 price<2.5 vram>=80 !spot", "berth offers TERM..."},
    {VIEW_OFFERS, ACT_SORT, 's', 0, 7, false, "sort", "sort by the next column", "berth offers --sort COLUMN"},
    {VIEW_OFFERS, ACT_SORT_REVERSE, 'S', 0, 0, false, NULL, "sort the other way round", NULL},
    {VIEW_OFFERS, ACT_REFRESH, 'r', K_F5, 8, false, "refresh", "read the offers again", "berth offers"},

    {VIEW_JOB, ACT_ENTER, K_ENTER, 0, 3, false, "edit", "change the value; a list of choices moves on", "berth plan --FIELD VALUE"},
    {VIEW_JOB, ACT_PLAN, 'p', 0, 4, false, "plans", "the best plans for this job", "berth plan"},
    {VIEW_JOB, ACT_LEFT, K_LEFT, 'h', 0, false, NULL, "previous choice", NULL},
    {VIEW_JOB, ACT_RIGHT, K_RIGHT, 'l', 5, false, "next choice", "next choice", NULL},

    {VIEW_PLANS, ACT_ENTER, K_ENTER, 0, 4, false, "details", "details of the plan, or the list alone", "berth explain plan.json"},
    {VIEW_PLANS, ACT_LAUNCH, 'l', 0, 3, true, "launch", "prepare the launch of this plan", "berth launch plan.json --hosts FILE"},
    {VIEW_PLANS, ACT_EDIT_JOB, 'e', 0, 5, false, "edit job", "change what is to be trained", "berth plan --model NAME --tokens N"},
    {VIEW_PLANS, ACT_NEXT_PANE, 'x', 0, 6, false, "rejected", "what was rejected, and what would make it fit", "berth plan --json"},
    {VIEW_PLANS, ACT_SAVE_PLAN, 'w', 0, 7, true, "write", "write the plan to a file", "berth plan -o plan.json --pick RANK"},
    {VIEW_PLANS, ACT_REFRESH, 'r', K_F5, 0, false, NULL, "search again", "berth plan"},

    {VIEW_LAUNCH, ACT_ENTER, K_ENTER, 0, 4, false, "edit", "change the value", "berth launch --hosts FILE"},
    {VIEW_LAUNCH, ACT_CHECK, 'c', 0, 5, true, "check", "connect to the hosts and see whether they can do their part", "berth doctor HOSTS"},
    {VIEW_LAUNCH, ACT_DRY_RUN, 'd', 0, 6, true, "dry run", "every host, file, command and rank; nothing is done", "berth launch plan.json --hosts FILE --dry-run"},
    {VIEW_LAUNCH, ACT_LAUNCH, 'L', 0, 3, true, "launch", "start the run, after a question", "berth launch plan.json --hosts FILE"},

    {VIEW_RUN, ACT_NEXT_PLOT, 'o', 0, 4, false, "next plot", "loss, tokens per second, memory, learning rate", "berth status RUN --json"},
    {VIEW_RUN, ACT_LOG_SCALE, 'y', 0, 6, false, "log scale", "logarithmic scale, or linear again", NULL},
    {VIEW_RUN, ACT_FOLLOW, 'f', 0, 5, false, "follow", "to the newest log line, and stay there", "berth logs RUN --follow"},
    {VIEW_RUN, ACT_FILTER, '/', 0, 7, false, "filter", "show only log lines that contain a text", "berth logs RUN | grep TEXT"},
    {VIEW_RUN, ACT_REFRESH, 'r', K_F5, 9, false, "refresh", "read the run's files again and attach anew", "berth status RUN"},
    {VIEW_RUN, ACT_STOP, 'X', 0, 3, true, "stop", "stop the run on every host, after a question", "berth stop RUN"},
    {VIEW_RUN, ACT_RESUME, 'R', 0, 8, true, "resume", "start it again from its last checkpoint, after a question", "berth resume RUN"},

    {VIEW_RUNS, ACT_ENTER, K_ENTER, 0, 3, false, "open", "follow this run", "berth attach RUN"},
    {VIEW_RUNS, ACT_FILTER, '/', 0, 5, false, "filter", "show only runs that contain a text", "berth runs"},
    {VIEW_RUNS, ACT_REFRESH, 'r', K_F5, 4, false, "refresh", "look again", "berth runs"},
    {VIEW_RUNS, ACT_SORT, 's', 0, 6, false, "sort", "sort by the next column", NULL},
    {VIEW_RUNS, ACT_SORT_REVERSE, 'S', 0, 0, false, NULL, "sort the other way round", NULL},

    {VIEW_HELP, ACT_FILTER, '/', 0, 3, false, "search", "show only keys that contain a text", NULL},
    {VIEW_HELP, ACT_NEXT_PANE, 'x', 0, 4, false, "all keys", "the keys of all views, or of the one you came from", NULL},

    {MODE_EDIT, ACT_EDIT_DONE, K_ENTER, 0, 1, false, "done", "keep the text", NULL},
    {MODE_EDIT, ACT_EDIT_CANCEL, K_ESC, 0, 2, false, "undo", "put back what was there", NULL},
    {MODE_EDIT, ACT_EDIT_NEXT, K_TAB, K_DOWN, 3, false, "next", "keep the text and edit the next field", NULL},
    {MODE_EDIT, ACT_EDIT_PREVIOUS, K_BACK_TAB, K_UP, 0, false, NULL, "keep the text and edit the field before", NULL},

    {MODE_CONFIRM, ACT_EDIT_DONE, K_ENTER, 0, 2, false, "answer", "do it when the asked text was typed, else not", "--yes"},
    {MODE_CONFIRM, ACT_EDIT_CANCEL, K_ESC, 0, 1, false, "no", "do not do it", NULL},
};
/* clang-format on */

const struct binding *keys_table(size_t *n)
{
    *n = BASE_COUNT(table);
    return table;
}

static bool is_mode(enum view view)
{
    return view == MODE_EDIT || view == MODE_CONFIRM;
}

bool keys_apply(const struct binding *b, enum view view, bool is_read_only)
{
    if (b->is_acting && is_read_only)
        return false;
    return b->view == view || (b->view == VIEW_ANY && !is_mode(view));
}

const struct binding *keys_find(enum view view, int key, bool is_read_only)
{
    const struct binding *general = NULL;
    for (size_t i = 0; i < BASE_COUNT(table); i++) {
        const struct binding *b = &table[i];
        bool is_key = b->key == key || (b->alias && b->alias == key);
        if (!is_key || !keys_apply(b, view, is_read_only))
            continue;
        if (b->view == view)
            return b;
        general = b;
    }
    return general;
}

char *key_name(int key, char buf[16])
{
    static const struct {
        int key;
        const char *name;
    } names[] = {
        {K_ENTER, "enter"},
        {K_TAB, "tab"},
        {K_ESC, "esc"},
        {K_BACKSPACE, "backspace"},
        {K_CTRL_L, "ctrl-l"},
        {K_UP, "up"},
        {K_DOWN, "down"},
        {K_LEFT, "left"},
        {K_RIGHT, "right"},
        {K_PAGE_UP, "page-up"},
        {K_PAGE_DOWN, "page-down"},
        {K_HOME, "home"},
        {K_END, "end"},
        {K_BACK_TAB, "shift-tab"},
        {K_F1, "F1"},
        {K_F5, "F5"},
        {K_F10, "F10"},
        {' ', "blank"},
    };
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        if (names[i].key == key) {
            str_copy(buf, 16, names[i].name);
            return buf;
        }
    }
    snprintf(buf, 16, "%c", key > ' ' && key < 127 ? key : '?');
    return buf;
}

const char *view_name(enum view view)
{
    static const char *const names[] = {[VIEW_OFFERS] = "Offers",
        [VIEW_JOB] = "Job",
        [VIEW_PLANS] = "Plans",
        [VIEW_LAUNCH] = "Launch",
        [VIEW_RUN] = "Run",
        [VIEW_RUNS] = "Runs",
        [VIEW_HELP] = "Help",
        [MODE_EDIT] = "While text is entered",
        [MODE_CONFIRM] = "When a question is open",
        [VIEW_ANY] = "Everywhere"};
    return names[view];
}

/* --- footer --- */

enum { FOOTER_MAX = 16 };

static const char *label_of(const struct binding *b, const char *quit_label)
{
    return b->action == ACT_QUIT ? quit_label : b->label;
}

static int entry_width(const struct binding *b, const char *quit_label)
{
    char name[16];
    return text_width(key_name(b->key, name)) + 1 + text_width(label_of(b, quit_label));
}

/* Bindings of the footer, the most important first. */
static int collect(const struct binding **out, enum view view, bool is_read_only)
{
    int n = 0;
    for (size_t i = 0; i < BASE_COUNT(table) && n < FOOTER_MAX; i++) {
        const struct binding *b = &table[i];
        if (!b->priority || !keys_apply(b, view, is_read_only))
            continue;
        int at = n++;
        for (; at > 0 && out[at - 1]->priority > b->priority; at--)
            out[at] = out[at - 1];
        out[at] = b;
    }
    return n;
}

/* Left to right the order is by priority, too, but help and quit stand at the right end. */
void keys_footer(struct pane p, enum view view, bool is_read_only, const char *quit_label)
{
    const struct binding *entry[FOOTER_MAX];
    int n = collect(entry, view, is_read_only), fit = 0, used = 1;
    while (fit < n && used + entry_width(entry[fit], quit_label) <= p.r.w)
        used += entry_width(entry[fit++], quit_label) + 2;
    int general = is_mode(view) ? 0 : fit < 2 ? fit : 2;
    for (int i = 0, x = 1; i < fit; i++) {
        const struct binding *b = i < fit - general ? entry[general + i] : entry[fit - 1 - i];
        char name[16];
        x = text_putf(p, 0, x, ROLE_KEY, "%s", key_name(b->key, name));
        x = text_putf(p, 0, x, ROLE_NORMAL, " %s", label_of(b, quit_label)) + 2;
    }
}
