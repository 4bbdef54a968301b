/* What parts of a step that were timed by themselves say of a processor: what memory, disk and the
 * optimizer on a host do, what threads of a rank lose, and how precisions compare. Inside of
 * planner/probe.c. */
#ifndef PLANNER_PROBE_PARTS_H
#define PLANNER_PROBE_PARTS_H

#include "planner/probe.h"

/* Constants of memory, disk and optimizer, as far as they were timed: rates of all threads at work,
 * added to values. */
void probe_parts_values(struct json *values, const struct probe_input *in);

/* What products of a rank lose with each doubling of its threads, over what ranks of one thread
 * do: the mean over shapes and precisions. NaN where none was timed with several numbers. */
double probe_parts_thread_loss(const struct probe_input *in);

/* How many times as fast products of one precision are as those of the other, the mean over
 * shapes and threads. NaN where they were not both timed. */
double probe_parts_speedup(const struct probe_input *in, enum precision of, enum precision over);

#endif
