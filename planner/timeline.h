/* A linked schedule boiled down to what decides its seconds.
 *
 * Operations of a lane that nothing waits for and that wait for nothing follow each other without a
 * break: they are one segment. Equal segments share one run of prices, equal sections one list.
 * Simulating the segments gives the seconds of simulating each operation, to rounding; many
 * machines are then priced from one timeline. */
#ifndef PLANNER_TIMELINE_H
#define PLANNER_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/price.h"

/* Prices of the operations of a segment: ids[first] on. */
struct run {
    int32_t first, n;
    uint32_t hash; /* of the ids */
    bool is_collective;
};

struct segment {
    int32_t run;
    int32_t op;                /* list index of the first operation */
    int32_t waits[LANE_COUNT]; /* so many segments of each lane must be finished first */
};

/* One lane of a section: segments[first] on. */
struct stretch {
    int32_t first, n;
};

struct timeline_section {
    struct stretch lane[LANE_COUNT];
    enum section_kind kind;
    int64_t repeat;
    int same_as; /* an earlier section that takes as long, -1: none */
};

/* One schedule; its strategy is copied. */
struct timeline {
    struct strategy strategy;
    struct timeline_section section[SCHEDULE_MAX_SECTIONS];
    int n_sections;
    struct segment *segments;
    int32_t n_segments, segments_cap;
    struct run *runs;
    int32_t n_runs, runs_cap;
    int32_t *ids;
    int32_t n_ids, ids_cap;
    double *times; /* by price: how often in a step */
    int32_t n_times;
};

/* Adds to prices, which other timelines may share. is_merged: else every operation is a segment of
 * its own and every section stands for itself. Free with timeline_free. */
struct timeline *timeline_new(const struct schedule *s, struct prices *prices, bool is_merged);
void timeline_free(struct timeline *t);

#endif
