/* What sharding costs: steps of GPT-2 124M on two ranks of this machine, ZeRO-3 against ddp, in
 * turns. The ranks are processes that hold both at once; a time is that of rank 0. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/lib_bench.h"

enum { RANKS = 2, ROUNDS = 7 };

static void open_one(struct trainer *t, enum strategy_kind kind, const struct comm_options *comm)
{
    struct trainer_options o = {.model = "gpt2",
        .strategy = strategy_default(kind, RANKS, RANKS),
        .threads = 1,
        .comm = comm};
    o.strategy.seq = 64;
    o.strategy.micro_batch = 4;
    o.strategy.precision = PRECISION_FP32;
    trainer_open(t, &o);
    trainer_step(t);
}

static void run(const struct comm_options *of_ddp, const struct comm_options *of_zero3)
{
    struct trainer ddp, zero3;
    double ratio[ROUNDS], a[ROUNDS], b[ROUNDS];
    open_one(&ddp, STRATEGY_DDP, of_ddp);
    open_one(&zero3, STRATEGY_ZERO3, of_zero3);
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = trainer_step(&ddp);
        b[i] = trainer_step(&zero3);
        ratio[i] = a[i] / b[i];
    }
    double tokens = RANKS * 4 * 64;
    if (of_ddp->rank == 0)
        printf(
            "gpt2 fp32, 2 ranks of one thread, 4 x 64 tokens each: ddp %.0f tokens/s, zero3 %.0f; "
            "zero3 over ddp %.2f (%.2f to %.2f)\n",
            tokens / median(a, ROUNDS), tokens / median(b, ROUNDS), median(ratio, ROUNDS), ratio[0],
            ratio[ROUNDS - 1]);
    trainer_close(&zero3);
    trainer_close(&ddp);
}

int main(void)
{
    static struct ranks ddp, zero3;
    ranks_listen(&ddp, RANKS, true);
    ranks_listen(&zero3, RANKS, true);
    fflush(stdout);
    for (int i = 0; i < RANKS; i++) {
        if (fork() != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(&ddp.o[i], &zero3.o[i]);
        exit(0);
    }
    ranks_forget(&ddp, RANKS);
    ranks_forget(&zero3, RANKS);
    while (wait(NULL) > 0)
        continue;
    return 0;
}
