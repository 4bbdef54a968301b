#include "cli/evidence_load.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/options.h"

enum { EVIDENCE_MAX_BYTES = 256 << 20 };

enum rc evidence_load_both(
    struct evidence *out, struct evidence *adapted, const char *path, struct err *e)
{
    struct str text = STR_INIT;
    struct csv table = {0};
    enum rc rc = file_read(&text, path, EVIDENCE_MAX_BYTES, e);
    if (rc)
        return err_input(e, rc);
    rc = csv_parse(&table, str_text(&text), text.len, e);
    if (!rc)
        rc = evidence_read(out, &table, e);
    if (!rc && adapted)
        rc = evidence_read_adapted(adapted, &table, e);
    if (rc)
        err_in(e, "%s", path);
    csv_release(&table);
    str_release(&text);
    return rc;
}

enum rc evidence_load(struct evidence *out, const char *path, struct err *e)
{
    return evidence_load_both(out, NULL, path, e);
}

char *rates_user_path(void)
{
    char *folder = path_user(PATH_DATA), *path = path_join(folder, "calibration.json");
    free(folder);
    return path;
}

enum rc rates_load_user(struct rates **out, struct err *e)
{
    char *path = rates_user_path();
    enum rc rc =
        file_exists(path) ? err_input(e, rates_with_file(out, path, e)) : rates_builtin(out, e);
    free(path);
    return rc;
}

enum rc rates_load(struct rates **out, const struct args *args, struct err *e)
{
    if (!args_has(args, "calibration"))
        return rates_load_user(out, e);
    return err_input(e, rates_with_file(out, args_text(args, "calibration"), e));
}

enum rc rates_write(const struct json *document, const char *path, struct err *e)
{
    const struct json *list = json_get(document, "entries");
    struct str text = STR_INIT;
    str_add(&text, "{\"schema\": \"calibration/1\", \"entries\": [");
    for (size_t i = 0; i < json_len(list); i++) {
        char *entry = json_print(json_at(list, i), false);
        str_addf(&text, "%s\n%s", i ? "," : "", entry);
        free(entry);
    }
    str_add(&text, "\n]");
    if (json_get(document, "seen")) {
        char *seen = json_print(json_get(document, "seen"), false);
        str_addf(&text, ",\n\"seen\": %s", seen);
        free(seen);
    }
    str_add(&text, "}\n");
    enum rc rc = file_write(path, str_text(&text), text.len, 0644, e);
    str_release(&text);
    return rc;
}
