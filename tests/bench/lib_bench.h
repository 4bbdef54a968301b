/* What benchmark programs share: medians, a rank that trains on made-up tokens, and a program of
 * somebody else to compare with. Whatever fails ends the program with its sentence. */
#ifndef TESTS_BENCH_LIB_BENCH_H
#define TESTS_BENCH_LIB_BENCH_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/comm.h"
#include "engine/executor.h"

void need(enum rc rc, const struct err *e);
/* Sorts. */
double median(double *x, int n);

/* --- a rank --- */

struct trainer_options {
    const char *model;
    struct strategy strategy;
    int threads;
    const struct comm_options *comm; /* NULL: the only rank */
    const char *disk_dir;
    observe_fn *observe;
    void *observe_arg;
};
struct trainer {
    struct schedule *schedule;
    struct comm *comm;
    struct executor *x;
    int64_t step;
};
void trainer_open(struct trainer *t, const struct trainer_options *o);
void trainer_close(struct trainer *t);
/* One step of AdamW; its seconds. */
double trainer_step(struct trainer *t);

/* --- ranks of this machine, a process each --- */

/* Options of each, listening; all on one host when share_memory is true. comm_open takes them. */
enum { BENCH_MAX_RANKS = 4 };
struct ranks {
    struct comm_options o[BENCH_MAX_RANKS];
    char text[BENCH_MAX_RANKS][32];
    const char *peers[BENCH_MAX_RANKS];
};
void ranks_listen(struct ranks *r, int ranks, bool shares_memory);
/* After the processes were started: the parent's copies. */
void ranks_forget(struct ranks *r, int ranks);

/* --- a peer --- */

/* A Python script of this folder that says "ready", and after each line that it reads answers with
 * numbers. */
struct peer {
    FILE *f;
    pid_t pid;
};
/* False where Python, pip or the packages (as pip writes them, separated by spaces) cannot be had.
 * args: up to four, NULL at the end. */
bool peer_open(struct peer *p, const char *packages, const char *script, const char *const *args);
/* One round: n numbers. */
bool peer_round(struct peer *p, double *out, int n);
void peer_close(struct peer *p);

#endif
