/* What the limits of a job say about offers before any is planned: which limit leaves which out,
 * and words that name no offer at all. */
#ifndef PLANNER_LIMITS_H
#define PLANNER_LIMITS_H

#include <stdbool.h>

#include "inventory/offer.h"
#include "planner/job.h"

struct str;

/* Does every limit let the offer through? */
bool limits_allow(const struct job *j, const struct offer *o);

/* "of 12 offers, provider leaves out 12 and spot 3": how many each limit removes by itself. */
void limits_describe(struct str *out, const struct job *j, const struct offers *l);

/* "provider 'asw', region 'eu'": the words of the limits that fit no offer; nothing when each fits
 * one. */
void limits_unmatched(struct str *out, const struct job *j, const struct offers *l);

#endif
