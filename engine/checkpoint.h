/* Checkpoints: per step a folder of safetensors files and a manifest that says which elements of
 * which flattened tensor lie where, so that any strategy at any world size can load them.
 *
 *   DIR/step-00000100/  rank-0000.safetensors ...  manifest.json   (schema "checkpoint/1")
 *
 * A save writes into step-N.tmp on every host, syncs, agrees among all ranks, renames; a crash at
 * any moment leaves the previous checkpoints whole. With `local+partner` the files of a host also
 * lie on the next host. A load agrees on the newest step whose files all exist somewhere with the
 * right size and hash, brings missing files from the hosts that have them, then reads locally; with
 * partners, a file that only one host has left goes to another one as well.
 *
 * Asynchronous, a save copies the rank's state into memory that is taken at the start of the run
 * (checkpoint_image.h), and a thread of its own writes while training goes on; its collectives have
 * a channel and a deadline of their own. Else training waits, and there is neither copy nor thread.
 *
 * All functions are for the executor's thread, between steps. Opening, starting and loading are
 * collective: every rank does them at the same step, with the same arguments. */
#ifndef ENGINE_CHECKPOINT_H
#define ENGINE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/guard.h"

struct checkpoint;
struct executor;

struct checkpoint_options {
    const char *dir;     /* of this host; the same on all hosts for a shared store */
    const int *host_of;  /* host number by rank, consecutive; all 0 for a shared store */
    bool has_partner;    /* copy each host's files to the next one */
    bool is_async;       /* training goes on; not with states on disk, of which there is no copy */
    int64_t keep;        /* newest checkpoints that stay */
    double collective_s; /* deadline of a collective of a step; those of saves have longer ones */
};

/* What is saved beside the tensors. */
struct checkpoint_info {
    int64_t step;
    int64_t samples; /* consumed, all ranks: the global position in the data order */
    uint64_t seed;
    struct guard guard;
};

/* A save that is on every disk it belongs on. */
struct checkpoint_report {
    int64_t step;   /* -1: none ended */
    int64_t bytes;  /* of the files of all ranks, each once */
    double seconds; /* from the start */
    double stall_s; /* of them, training waited on this rank */
};

/* dir and host_of are kept until the close. */
enum rc checkpoint_open(
    struct checkpoint **out, struct executor *x, const struct checkpoint_options *o, struct err *e);
/* Gives up a save that runs: nothing of it will count. False when its thread is stuck in the disk;
 * the process must then end without releasing what the thread uses. NULL is allowed. */
bool checkpoint_close(struct checkpoint *c);

/* Held outside the slabs, for as long as it is open. */
int64_t checkpoint_memory_bytes(const struct checkpoint *c);

/* Save the state as it is now. Waits for a save that runs, and with is_async false until all is
 * done; how it ended is told by checkpoint_end. */
enum rc checkpoint_start(struct checkpoint *c, const struct checkpoint_info *info, struct err *e);
/* On rank 0, false means that no rank is at it any more. */
bool checkpoint_is_saving(struct checkpoint *c);
/* Has a save ended since the last call? The failure of a save is returned here. is_waiting: until a
 * save that runs has ended. */
enum rc checkpoint_end(
    struct checkpoint *c, bool is_waiting, struct checkpoint_report *out, struct err *e);
/* After a failure e of something else: a save that failed first is the better cause. */
enum rc checkpoint_blame(struct checkpoint *c, struct err *e);

/* step: one to load, or -1 for the newest good one. *info is what was loaded; step -1 in it when
 * there is none and -1 was asked for. Waits for a save that runs. *passed_over says what was wrong
 * with a newer one, if anything. Publishes. */
enum rc checkpoint_load(struct checkpoint *c, int64_t step, struct checkpoint_info *info,
    struct err *passed_over, struct err *e);

#endif
