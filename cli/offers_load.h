/* The offers a command works on, from the flags all such commands share. */
#ifndef CLI_OFFERS_LOAD_H
#define CLI_OFFERS_LOAD_H

#include "base/err.h"
#include "cli/options.h"

struct args;
struct offers;
struct out;

/* --offers, --here, --ranks-per-node: put it among a command's groups. */
extern const struct option_group OFFERS_OPTIONS;

/* Read them; the bundled sample when nothing is given, saying so on stderr. On success *out must
 * be freed with offers_free. */
enum rc offers_load(struct offers **list, const struct args *args, struct out *out, struct err *e);

#endif
