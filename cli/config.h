/* Configuration files: JSON objects whose keys are the settings of the option table.
 *
 * Nearest wins: the project file ./berth.json, the user's config.json, /etc/berth/config.json.
 * Berth reads them and leaves unknown keys alone. */
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cli/options.h"

struct config;

/* Read the three files; an absent one is empty, a broken one is RC_INVALID naming it. On success
 * *out must be freed with config_free. */
enum rc config_load(struct config **out, struct err *e);
/* One without any setting; free it likewise. */
struct config *config_none(void);
void config_free(struct config *c);

/* A value as texts (several for an array); all borrowed, valid until config_free. */
struct config_value {
    const char *const *texts;
    size_t n;
    enum origin origin;
    const char *path;
};
/* Nearest file that has the key; false when none has. */
bool config_find(const struct config *c, const char *key, struct config_value *out);

/* The i-th key of all files together, nearest first; false behind the end. */
bool config_key_at(const struct config *c, size_t i, const char **key, const char **path);

#endif
