#include "cli/evidence_load.h"

#include "base/csv.h"
#include "base/str.h"
#include "cli/options.h"

enum { EVIDENCE_MAX_BYTES = 256 << 20 };

enum rc evidence_load(struct evidence *out, const char *path, struct err *e)
{
    struct str text = STR_INIT;
    struct csv table = {0};
    enum rc rc = file_read(&text, path, EVIDENCE_MAX_BYTES, e);
    if (rc)
        return err_input(e, rc);
    rc = csv_parse(&table, str_text(&text), text.len, e);
    if (!rc)
        rc = evidence_read(out, &table, e);
    if (rc)
        err_in(e, "%s", path);
    csv_release(&table);
    str_release(&text);
    return rc;
}

enum rc rates_load(struct rates **out, const struct args *args, struct err *e)
{
    if (!args_has(args, "calibration"))
        return rates_builtin(out, e);
    return err_input(e, rates_with_file(out, args_text(args, "calibration"), e));
}
