/* Tables of measured runs, and the constants to predict them with, as commands are given them. */
#ifndef CLI_EVIDENCE_LOAD_H
#define CLI_EVIDENCE_LOAD_H

#include "base/err.h"
#include "base/file.h"
#include "planner/evidence.h"

struct args;
struct json;

/* RC_INVALID names file and line. Release with evidence_release. */
enum rc evidence_load(struct evidence *out, const char *path, struct err *e);
/* And the rows of adapters beside a frozen model, which that leaves out. */
enum rc evidence_load_both(
    struct evidence *out, struct evidence *adapted, const char *path, struct err *e);
/* The user's own constants, which `berth probe` writes. Caller frees; need not exist. */
char *rates_user_path(void);
/* The built-in constants with the user's own on top, if there are any. Release with rates_free. */
enum rc rates_load_user(struct rates **out, struct err *e);
/* The built-in ones with those of --calibration on top, else as rates_load_user. */
enum rc rates_load(struct rates **out, const struct args *args, struct err *e);
/* Write a calibration/1 document, an entry a line. */
enum rc rates_write(const struct json *document, const char *path, struct err *e);

#endif
