/* One rank of a run: connects, restores or initialises, trains, saves, reports.
 *
 *   berth-engine rank --dir RUNDIR --rank N [--trace FILE]
 *
 * Reads RUNDIR/spec.json, talks to its agent on descriptor 3 (run/message.h). After the first
 * step nothing allocates, apart from a command that comes and a checkpoint. */
#ifndef ENGINE_RANK_H
#define ENGINE_RANK_H

/* Exit status of the process; the sentence has been printed and sent to the agent. */
int rank_main(int argc, char **argv);

#endif
