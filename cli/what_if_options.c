#include "cli/what_if_options.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"

static const struct option OPTIONS[] = {
    {.name = "what-if",
        .kind = OPTION_TEXT,
        .argument = "CHANGE...",
        .is_repeatable = true,
        .takes_pairs = true,
        .help = "what would be first if this were otherwise",
        .detail = "A change is QUANTITY=FACTOR or, of one GPU, QUANTITY.GPU=FACTOR; `berth help "
                  "what-if` lists the quantities. Changes that follow each other, also after "
                  "commas, happen together; each --what-if is a question of its own.",
        .example = "--what-if network=0.5x price.h100=+10%"},
    {0},
};
const struct option_group WHAT_IF_OPTIONS = {"Questions", OPTIONS};

enum { MOST_QUESTIONS = 64 };

enum rc what_ifs_from_args(struct what_ifs *w, const struct args *args, struct err *e)
{
    size_t n = args_times(args, "what-if");
    *w = (struct what_ifs){0};
    if (n > MOST_QUESTIONS)
        return err_set(
            e, RC_USAGE, "option '--what-if' is given more than %d times", MOST_QUESTIONS);
    w->asked = base_calloc(n + 1, sizeof *w->asked);
    for (; w->n < n; w->n++) {
        enum rc rc = what_if_parse(&w->asked[w->n], args_nth(args, "what-if", w->n), e);
        if (rc)
            return err_in(e, "option '--what-if'");
    }
    return RC_OK;
}

void what_ifs_release(struct what_ifs *w)
{
    free(w->asked);
    free(w->answers);
    *w = (struct what_ifs){0};
}

enum rc what_ifs_answer(
    struct what_ifs *w, const struct search_input *in, const struct plan *stated, struct err *e)
{
    enum rc rc = RC_OK;
    w->answers = base_calloc(w->n + 1, sizeof *w->answers);
    for (size_t i = 0; !rc && i < w->n; i++)
        rc = what_if_plan(&w->answers[i], &w->asked[i], in, stated, e);
    return rc;
}

void what_ifs_describe(struct str *out, const struct what_ifs *w, const struct plan *stated,
    const struct search_input *in)
{
    for (size_t i = 0; i < w->n; i++)
        what_if_describe(out, &w->asked[i], &w->answers[i], stated, in);
}

struct json *what_ifs_json(
    const struct what_ifs *w, const struct plan *stated, const struct search_input *in)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < w->n; i++)
        json_push(list, what_if_json(&w->asked[i], &w->answers[i], stated, in));
    return list;
}
