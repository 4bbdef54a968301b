/* How long the operations of a plan take on this machine, and parts of a step by themselves.
 *
 *   berth-engine bench [--plan FILE [--steps N] [--warm-up N]] [--products THREADS]
 *                      [--memory THREADS] [--optimizer THREADS] [--collectives RANKS]
 *                      [--nvme-dir DIR,DIR]
 *
 * Runs all ranks of a plan for one node here, on made-up tokens, without saving anything (what the
 * plan keeps on disk lies in files without names in these folders, which end with it; --steps 0:
 * its products alone are of interest), then the parts, and writes one bench/1 document
 * (run/bench_record.h, docs/bench.md) to standard output. The ranks are processes connected over
 * loopback, as an agent would start them. */
#ifndef ENGINE_BENCH_H
#define ENGINE_BENCH_H

/* Exit status of the process; on failure a sentence has been printed. */
int bench_main(int argc, char **argv);

#endif
