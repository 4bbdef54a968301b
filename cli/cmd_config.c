/* `berth config show`: every setting, its value and where that came from. */
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/output.h"
#include "cli/table.h"

static const struct table_column COLUMNS[] = {{.name = "SETTING"},
    {.name = "VALUE", .is_elastic = true}, {.name = "ORIGIN", .is_extra = true},
    {.name = "FROM", .is_extra = true, .is_elastic = true}, {0}};

/* What `berth` would take for one setting if no flag were given. */
struct setting {
    char key[64];
    char env[64];
    const char *text; /* NULL: unset */
    enum origin origin;
    const char *from; /* file or variable; NULL for a default */
    size_t more;      /* further values of a repeatable one */
};

static void resolve(
    struct setting *s, struct args *all, const struct option *o, const struct config *config)
{
    option_key(o, s->key);
    option_env(o, s->env);
    s->text = args_text(all, o->name);
    s->origin = args_origin(all, o->name);
    s->more = args_times(all, o->name);
    s->from = NULL;
    struct config_value found;
    if (s->origin == ORIGIN_ENV)
        s->from = s->env;
    else if (s->origin != ORIGIN_DEFAULT && config_find(config, s->key, &found))
        s->from = found.path;
}

static struct json *setting_json(const struct setting *s, const struct args *all, const char *name)
{
    struct json *v = json_obj();
    json_add_str(v, "name", s->key);
    json_add_str(v, "value", s->text);
    if (s->more > 1) {
        struct json *values = json_arr();
        for (size_t i = 0; i < s->more; i++)
            json_push_str(values, args_nth(all, name, i));
        json_add(v, "values", values);
    }
    json_add_str(v, "origin", origin_name(s->origin));
    json_add_str(v, "from", s->from);
    return v;
}

/* All values of a repeatable setting, else the one. */
static void cell_values(
    struct table *t, const struct setting *s, const struct args *all, const char *name)
{
    struct str text = STR_INIT;
    for (size_t i = 0; i < s->more; i++)
        str_addf(&text, "%s%s", i ? "," : "", args_nth(all, name, i));
    table_cell(t, text.len ? str_text(&text) : s->text);
    str_release(&text);
}

static enum rc show(const struct args *args, struct args *all, const struct config *config,
    struct out *out, struct err *e)
{
    const struct option *settings[COMMAND_MAX_SETTINGS];
    size_t n = command_settings(settings, COMMAND_MAX_SETTINGS);
    struct json *list = json_arr();
    struct table *t = table_new(COLUMNS);
    for (size_t i = 0; i < n; i++) {
        struct setting s;
        resolve(&s, all, settings[i], config);
        json_push(list, setting_json(&s, all, settings[i]->name));
        table_cell(t, s.key);
        cell_values(t, &s, all, settings[i]->name);
        table_cell(t, origin_name(s.origin));
        table_cell(t, s.from);
    }
    if (out_is_json(out)) {
        struct json *doc = out_document(out, "config/1");
        json_add(doc, "settings", list);
        table_free(t);
        out_json(out, doc);
        return RC_OK;
    }
    json_free(list);
    enum rc rc = RC_OK;
    if (args_flag(args, "origin"))
        rc = table_select(t, "setting,value,origin,from", e);
    if (rc)
        table_free(t);
    else
        out_table(out, t, args);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    if (strcmp(args_operand(args, 0), "show") != 0)
        return err_set(
            e, RC_USAGE, "unknown action '%s'; did you mean 'show'?", args_operand(args, 0));
    const struct option *settings[COMMAND_MAX_SETTINGS + 1];
    size_t n = command_settings(settings, COMMAND_MAX_SETTINGS);
    struct option table[COMMAND_MAX_SETTINGS + 1] = {{0}};
    for (size_t i = 0; i < n; i++)
        table[i] = *settings[i];
    const struct option_group group = {"Settings", table};
    struct args *all = args_new((const struct option_group *const[]){&group, NULL});
    struct config *config = NULL;
    enum rc rc = config_load(&config, e);
    if (!rc)
        rc = args_settle(all, config, e);
    if (!rc)
        rc = show(args, all, config, out, e);
    config_free(config);
    args_free(all);
    return rc;
}

static const struct option OPTIONS[] = {
    {.name = "origin", .kind = OPTION_FLAG, .help = "say where each value comes from"},
    {0},
};
static const struct option_group CONFIG_OPTIONS = {"Options", OPTIONS};

const struct command CMD_CONFIG = {
    .name = "config",
    .topic = COMMAND_SELF,
    .summary = "show the settings in force",
    .operands = "show",
    .min_operands = 1,
    .max_operands = 1,
    .about = "A setting is an option that may also stand in the environment or in a configuration "
             "file. The nearest wins: option, environment (BERTH_NAME), job file, ./berth.json, "
             "config.json of the user, /etc/berth/config.json, built-in.",
    .examples = (const char *const[]){"berth config show", "berth config show --origin", NULL},
    .groups = (const struct option_group *const[]){&CONFIG_OPTIONS, NULL},
    .run = run,
};
