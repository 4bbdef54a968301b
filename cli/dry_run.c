#include "cli/dry_run.h"

#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/output.h"

void dry_add(struct json *steps, const char *where, const char *verb, const char *fmt, ...)
{
    char what[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    struct json *o = json_obj();
    json_add_str(o, "where", where);
    json_add_str(o, "does", verb);
    json_add_str(o, "what", what);
    json_push(steps, o);
}

void dry_print(struct out *out, const char *schema, const char *title, struct json *steps)
{
    struct str text = STR_INIT;
    const char *last = "";
    if (out_is_json(out)) {
        struct json *doc = out_document(out, schema);
        json_add_bool(doc, "dry_run", true);
        json_add(doc, "steps", steps);
        out_json(out, doc);
        return;
    }
    str_addf(&text, "%s\n", title);
    for (size_t i = 0; i < json_len(steps); i++) {
        const struct json *o = json_at(steps, i);
        const char *where = json_str(o, "where", "");
        if (strcmp(where, last) != 0)
            str_addf(&text, "%s%s\n", strcmp(where, DRY_HERE) == 0 ? "" : "host ", where);
        last = where;
        str_addf(&text, "  %-8s %s\n", json_str(o, "does", ""), json_str(o, "what", ""));
    }
    out_lines(out, str_text(&text));
    str_release(&text);
    json_free(steps);
}
