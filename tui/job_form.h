/* What is to be trained, as the form holds it: texts that are checked while they are typed, and the
 * command-line options they stand for. */
#ifndef TUI_JOB_FORM_H
#define TUI_JOB_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/line_edit.h"

struct argv;
struct json;

enum job_field_id {
    JOB_MODEL,
    JOB_TOKENS,
    JOB_SEQ,
    JOB_BATCH,
    JOB_PRECISION,
    JOB_OBJECTIVE,
    JOB_BUDGET,
    JOB_DEADLINE,
    JOB_MAX_GPUS,
    JOB_GPU,
    JOB_PROVIDER,
    JOB_REGION,
    JOB_SPOT,
    JOB_ENGINE,
    JOB_FIELDS
};

enum { JOB_MESSAGE = 160 };

struct job_form {
    struct line_edit field[JOB_FIELDS];
    char error[JOB_FIELDS][JOB_MESSAGE]; /* "" when the text is good */
    int cursor;
    uint64_t version; /* counts the changes */
};

void job_form_init(struct job_form *f);
const char *job_field_label(enum job_field_id id);
/* What to enter, with an example. */
const char *job_field_hint(enum job_field_id id);
bool job_field_is_choice(enum job_field_id id);
/* Next or previous choice of a choice field. */
void job_form_turn(struct job_form *f, enum job_field_id id, int step);
/* Check every text; call after a change. Reads no files: a path to a config.json is taken as it is.
 */
void job_form_check(struct job_form *f);
bool job_form_is_good(const struct job_form *f);
/* Add the options of all fields that are filled in. */
void job_form_argv(const struct job_form *f, struct argv *a);
/* The same as the object of a job file. Caller frees. */
struct json *job_form_json(const struct job_form *f);
/* One line: "llama-3.1-8b, 10B tokens, 8,192 a sequence". */
void job_form_summary(const struct job_form *f, char *text, size_t cap);
/* Presets whose names contain the text of the model field: the i-th, NULL behind the last. */
const char *job_form_model_match(const struct job_form *f, int i);

#endif
