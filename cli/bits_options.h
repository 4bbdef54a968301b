/* What is kept or sent in fewer bits than usual, which mostly changes results. Shared by the
 * commands that plan. */
#ifndef CLI_BITS_OPTIONS_H
#define CLI_BITS_OPTIONS_H

#include "cli/options.h"

/* --master, --moments, --gradients, --gather-format, --reduce-format */
extern const struct option_group BITS_OPTIONS;

#endif
