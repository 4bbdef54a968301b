/* Fibers of cuda_on_cpu.h. Compiled without the thread sanitizer, told of it by ON_CPU_TSAN. */
#include "tests/lib/cuda_on_cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ON_CPU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ON_CPU_ASAN 1
#endif
#endif
#ifdef ON_CPU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef ON_CPU_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void *, unsigned);
void __tsan_acquire(void *);
void __tsan_release(void *);
}
#else
static void __tsan_acquire(void *)
{
}
static void __tsan_release(void *)
{
}
#endif

namespace on_cpu {

enum { STACK_BYTES = 128 << 10, MOST_THREADS = 1024, LANES = 32 };
enum waiting { RUNS, AT_BARRIER, AT_WARP };

struct fiber {
    dim3 index;
    unsigned lane, warp;
    bool is_done;
    enum waiting waits;
    char *stack;
    void *sp, *asan, *tsan;
    ucontext_t context; /* where there is no switch of our own */
};

/* Lanes of a warp in one operation: who has come, and who has taken the result. */
struct warp {
    unsigned arrived, left, mask;
    enum warp_op op;
    uint64_t value[LANES];
};

/* All that were ever needed; the first n of them take part. */
static fiber *fibers[MOST_THREADS];
static unsigned n_fibers;
static struct warp warps[MOST_THREADS / LANES];
static unsigned order[MOST_THREADS], n, n_alive, n_at_barrier;
static dim3 grid, block, at_block;
static void (*body)(const void *);
static const void *body_arg;
static fiber *current;
static std::vector<void *> filled; /* shared memory that the block has used */
static uint64_t random_state;
static struct fiber scheduler;
static char order_start, order_barrier; /* what the thread sanitizer knows barriers by */
#ifdef ON_CPU_ASAN
static const void *scheduler_stack;
static size_t scheduler_bytes;
#endif

const dim3 &thread_index()
{
    return current->index;
}
const dim3 &block_index()
{
    return at_block;
}
const dim3 &block_size()
{
    return block;
}
const dim3 &grid_size()
{
    return grid;
}
unsigned lane_index()
{
    return current->lane;
}

/* --- switching --- */

#ifdef __x86_64__
/* Registers that a call keeps go to the stack. */
extern "C" void on_cpu_switch(void **from, void *to);
asm(".text\n.globl on_cpu_switch\n.type on_cpu_switch,@function\non_cpu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size on_cpu_switch,.-on_cpu_switch\n");

static void switch_stack(fiber *from, fiber *to)
{
    on_cpu_switch(&from->sp, to->sp);
}

static void prepare(fiber *f, void (*entry)(void))
{
    void **sp = (void **)(void *)(f->stack + STACK_BYTES);
    *--sp = nullptr;
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    f->sp = sp;
}
#else
static void switch_stack(fiber *from, fiber *to)
{
    swapcontext(&from->context, &to->context);
}

static void prepare(fiber *f, void (*entry)(void))
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, entry, 0);
}
#endif

static void to_scheduler()
{
    fiber *me = current;
#ifdef ON_CPU_ASAN
    __sanitizer_start_switch_fiber(&me->asan, scheduler_stack, scheduler_bytes);
#endif
#ifdef ON_CPU_TSAN
    __tsan_switch_to_fiber(scheduler.tsan, 1); /* 1: switching orders nothing */
#endif
    switch_stack(me, &scheduler);
#ifdef ON_CPU_ASAN
    __sanitizer_finish_switch_fiber(me->asan, &scheduler_stack, &scheduler_bytes);
#endif
}

static void to_fiber(fiber *f)
{
    current = f;
#ifdef ON_CPU_ASAN
    __sanitizer_start_switch_fiber(&scheduler.asan, f->stack, STACK_BYTES);
#endif
#ifdef ON_CPU_TSAN
    __tsan_switch_to_fiber(f->tsan, 1);
#endif
    switch_stack(&scheduler, f);
#ifdef ON_CPU_ASAN
    __sanitizer_finish_switch_fiber(scheduler.asan, nullptr, nullptr);
#endif
}

/* A fiber runs one thread of a block after the other. */
static void entry(void)
{
#ifdef ON_CPU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_bytes);
#endif
    for (;;) {
        __tsan_acquire(&order_start);
        body(body_arg);
        __tsan_release(&order_start);
        current->is_done = true;
        n_alive--;
        to_scheduler();
    }
}

/* --- launching --- */

static void need_fibers(unsigned count)
{
    for (; n_fibers < count; n_fibers++) {
        fiber *f = new fiber();
        f->stack = (char *)aligned_alloc(4096, STACK_BYTES);
#ifdef ON_CPU_TSAN
        f->tsan = __tsan_create_fiber(0);
#endif
        prepare(f, entry);
        fibers[n_fibers] = f;
    }
}

static void shuffle_order()
{
    for (unsigned i = n - 1; i > 0 && random_state; i--) {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        unsigned j = (unsigned)(random_state % (i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void stuck()
{
    fprintf(stderr,
        "cuda_on_cpu: block (%u,%u,%u) waits for threads that never come to a barrier:\n",
        at_block.x, at_block.y, at_block.z);
    for (unsigned i = 0, shown = 0; i < n && shown < 4; i++)
        if (fibers[i]->waits != RUNS && ++shown)
            fprintf(stderr, "  thread %u waits at %s\n", i,
                fibers[i]->waits == AT_BARRIER ? "__syncthreads" : "a warp operation");
    abort();
}

static void run_block()
{
    n_alive = n;
    n_at_barrier = 0;
    filled.clear();
    for (unsigned i = 0; i < n; i++) {
        fibers[i]->is_done = false;
        fibers[i]->waits = RUNS;
    }
    for (unsigned i = 0; i < (n + LANES - 1) / LANES; i++)
        warps[i].arrived = warps[i].left = 0;
    __tsan_release(&order_start);
    while (n_alive > 0) {
        bool has_run = false;
        shuffle_order();
        for (unsigned i = 0; i < n; i++) {
            fiber *f = fibers[order[i]];
            if (f->is_done || f->waits != RUNS)
                continue;
            to_fiber(f);
            has_run = true;
        }
        if (!has_run && n_alive > 0)
            stuck();
    }
    __tsan_acquire(&order_start); /* blocks count as ordered */
}

static void check_launch(dim3 g, dim3 b)
{
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (threads >= 1 && threads <= MOST_THREADS && g.x >= 1 && g.y >= 1 && g.y <= 65535 &&
        g.z >= 1 && g.z <= 65535 && g.x <= INT32_MAX)
        return;
    fprintf(stderr, "cuda_on_cpu: no GPU launches a grid of (%u,%u,%u) blocks of (%u,%u,%u)\n", g.x,
        g.y, g.z, b.x, b.y, b.z);
    abort();
}

void launch(dim3 g, dim3 b, void (*f)(const void *), const void *arg)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    static bool has_seed;
    const char *seed = getenv("CUDA_ON_CPU_SEED");
    check_launch(g, b);
    pthread_mutex_lock(&one_at_a_time);
    if (!has_seed && seed)
        random_state = 88172645463325252u * (uint64_t)atoi(seed);
    has_seed = true;
    grid = g;
    block = b;
    n = b.x * b.y * b.z;
    body = f;
    body_arg = arg;
#ifdef ON_CPU_TSAN
    scheduler.tsan = __tsan_get_current_fiber();
#endif
    need_fibers(n);
    for (unsigned i = 0; i < n; i++) {
        fibers[i]->index = dim3(i % b.x, i / b.x % b.y, i / b.x / b.y);
        fibers[i]->lane = i % LANES;
        fibers[i]->warp = i / LANES;
        order[i] = i;
    }
    for (at_block.z = 0; at_block.z < g.z; at_block.z++)
        for (at_block.y = 0; at_block.y < g.y; at_block.y++)
            for (at_block.x = 0; at_block.x < g.x; at_block.x++)
                run_block();
    pthread_mutex_unlock(&one_at_a_time);
}

/* --- meeting --- */

void barrier()
{
    __tsan_release(&order_barrier);
    if (++n_at_barrier == n_alive) {
        n_at_barrier = 0;
        for (unsigned i = 0; i < n; i++)
            if (fibers[i]->waits == AT_BARRIER)
                fibers[i]->waits = RUNS;
    } else {
        current->waits = AT_BARRIER;
        to_scheduler();
    }
    __tsan_acquire(&order_barrier);
}

static void need(bool is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "cuda_on_cpu: thread (%u,%u,%u) of block (%u,%u,%u) %s\n", current->index.x,
        current->index.y, current->index.z, at_block.x, at_block.y, at_block.z, what);
    abort();
}

/* Until all lanes of the mask have come; who has is counted in *come. */
static void wait_for(unsigned mask, unsigned *come)
{
    *come |= 1u << current->lane;
    if (*come != mask) {
        current->waits = AT_WARP;
        to_scheduler();
        return;
    }
    *come = 0;
    for (unsigned i = 0; i < LANES; i++)
        if (mask >> i & 1 && fibers[current->warp * LANES + i]->waits == AT_WARP)
            fibers[current->warp * LANES + i]->waits = RUNS;
}

uint64_t meet_warp(unsigned mask, uint64_t value, unsigned source, enum warp_op op)
{
    struct warp *w = &warps[current->warp];
    unsigned left = n - current->warp * LANES, there = left < LANES ? (1u << left) - 1 : ~0u;
    need(mask >> current->lane & 1, "calls a warp operation whose mask leaves it out");
    need(!(mask & ~there), "names lanes in a mask that do not exist");
    if (!w->arrived) {
        w->mask = mask;
        w->op = op;
    }
    need(w->mask == mask && w->op == op, "meets lanes of its warp in another operation");
    need(op == SYNC || (source < LANES && mask >> source & 1), "reads a lane outside the mask");
    if (op == SYNC)
        __tsan_release(w);
    w->value[current->lane] = value;
    wait_for(mask, &w->arrived);
    if (op == SHUFFLE)
        value = w->value[source];
    wait_for(mask, &w->left);
    if (op == SYNC)
        __tsan_acquire(w);
    return value;
}

/* Not by memset, which the thread sanitizer watches. */
void fresh(void *p, size_t bytes)
{
    for (void *q : filled)
        if (q == p)
            return;
    filled.push_back(p);
    for (volatile unsigned char *c = (unsigned char *)p; bytes > 0; bytes--)
        *c++ = 0xff;
}

} // namespace on_cpu

/* Of the calling thread. */
struct scratch_lane {
    struct gpu_lane lane;
    scratch_lane()
    {
        lane.stream = nullptr;
        lane.scratch = aligned_alloc(256, GPU_SCRATCH_BYTES);
        memset(lane.scratch, 0xff, GPU_SCRATCH_BYTES);
    }
    ~scratch_lane()
    {
        free(lane.scratch);
    }
};

const struct gpu_lane *cuda_on_cpu_lane(void)
{
    static thread_local scratch_lane lane;
    return &lane.lane;
}
