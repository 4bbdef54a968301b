#include "inventory/sources/source.h"

#include "base/file.h"
#include "base/str.h"

static const struct source *const TEXT_SOURCES[] = {&SOURCE_OFFERS_JSON, &SOURCE_OFFERS_CSV};

static const struct source *recognise(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof(TEXT_SOURCES) / sizeof(TEXT_SOURCES[0]); i++)
        if (TEXT_SOURCES[i]->recognises(text, len))
            return TEXT_SOURCES[i];
    return NULL;
}

enum rc source_read_file(struct offers *out, const char *path, struct str *unknown, struct err *e)
{
    struct str text;
    str_init(&text, SOURCE_MAX_BYTES);
    enum rc rc = file_read(&text, path, SOURCE_MAX_BYTES, e);
    if (rc)
        goto out;
    const struct source *s = recognise(str_text(&text), text.len);
    if (!s) {
        rc = err_set(
            e, RC_INVALID, "'%s' is empty; it must hold an offers/1 document or a CSV table", path);
        goto out;
    }
    struct source_input in = {.text = str_text(&text), .len = text.len, .unknown = unknown};
    rc = s->read(out, &in, e);
    if (rc)
        err_in(e, "'%s'", path);
out:
    str_release(&text);
    return err_input(e, rc);
}
