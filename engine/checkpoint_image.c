#include "engine/checkpoint_image.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "engine/checkpoint_files.h"
#include "engine/comm.h"
#include "engine/durable_file.h"
#include "engine/safetensors.h"

enum copied { NOT_COPIED, BEING_COPIED, COPIED };

struct image {
    struct executor *x;
    struct piece *piece;
    size_t n_pieces;
    uint64_t *first; /* byte of each piece in the file */
    struct str header;
    uint64_t bytes;
    bool is_staged;
    char *memory; /* the file, or a window of one piece */
    size_t memory_bytes;
    pthread_mutex_t mutex; /* guards copied and waited_s */
    pthread_cond_t changed;
    unsigned char *copied; /* by unit; enum copied */
    double waited_s;
};

/* --- life cycle --- */

static void lay_out(struct image *im)
{
    const struct schedule *s = executor_schedule(im->x);
    int shard = comm_group_rank(executor_comm(im->x), GROUP_SHARD);
    im->n_pieces = checkpoint_pieces(s, shard, &im->piece);
    struct st_tensor *t = base_calloc(im->n_pieces + 1, sizeof(*t));
    im->first = base_calloc(im->n_pieces + 1, sizeof(*im->first));
    for (size_t i = 0; i < im->n_pieces; i++)
        t[i] = (struct st_tensor){
            .name = im->piece[i].name, .dtype = "F32", .dims = 1, .shape = {im->piece[i].count}};
    uint64_t data = st_header(&im->header, t, im->n_pieces);
    for (size_t i = 0; i < im->n_pieces; i++)
        im->first[i] = im->header.len + t[i].begin;
    im->bytes = im->header.len + data;
    free(t);
}

enum rc image_new(struct image **out, struct executor *x, bool is_staged, struct err *e)
{
    struct image *im = base_calloc(1, sizeof(*im));
    im->x = x;
    im->header = (struct str)STR_INIT;
    im->is_staged = is_staged;
    pthread_mutex_init(&im->mutex, NULL);
    pthread_cond_init(&im->changed, NULL);
    lay_out(im);
    int units = executor_schedule(x)->n_units;
    im->copied = base_alloc((size_t)units);
    memset(im->copied, COPIED, (size_t)units);
    im->memory_bytes = base_align_up(is_staged ? im->bytes : DURABLE_PIECE_BYTES, DURABLE_ALIGN);
    void *p =
        mmap(NULL, im->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        enum rc rc = err_sys(e, RC_LIMIT,
            "cannot map %zu bytes to copy the state of a checkpoint into; '--checkpoint sync' does "
            "without",
            im->memory_bytes);
        image_free(im);
        return rc;
    }
    im->memory = p;
    madvise(p, im->memory_bytes, MADV_HUGEPAGE);
    memset(p, 0, im->memory_bytes); /* there from the start: no page comes during a save */
    if (is_staged)
        memcpy(im->memory, im->header.p, im->header.len);
    *out = im;
    return RC_OK;
}

void image_free(struct image *im)
{
    if (!im)
        return;
    if (im->memory)
        munmap(im->memory, im->memory_bytes);
    str_release(&im->header);
    free(im->piece);
    free(im->first);
    free(im->copied);
    pthread_cond_destroy(&im->changed);
    pthread_mutex_destroy(&im->mutex);
    free(im);
}

uint64_t image_bytes(const struct image *im)
{
    return im->bytes;
}

int64_t image_memory_bytes(const struct image *im)
{
    return (int64_t)im->memory_bytes;
}

/* --- copying --- */

static const float *source(const struct image *im, const struct piece *p)
{
    struct state_view v = executor_state(im->x, p->unit, p->kind);
    return v.data + (p->unit_first - v.first);
}

static void copy_unit(struct image *im, int unit)
{
    for (size_t i = 0; i < im->n_pieces; i++) {
        const struct piece *p = &im->piece[i];
        if (p->unit == unit)
            memcpy(im->memory + im->first[i], source(im, p), (size_t)p->count * sizeof(float));
    }
}

/* Whoever comes first copies; the others wait for it. */
static void ensure_copied(struct image *im, int unit)
{
    pthread_mutex_lock(&im->mutex);
    if (im->copied[unit] == NOT_COPIED) {
        im->copied[unit] = BEING_COPIED;
        pthread_mutex_unlock(&im->mutex);
        copy_unit(im, unit);
        pthread_mutex_lock(&im->mutex);
        im->copied[unit] = COPIED;
        pthread_cond_broadcast(&im->changed);
    }
    while (im->copied[unit] != COPIED)
        pthread_cond_wait(&im->changed, &im->mutex);
    pthread_mutex_unlock(&im->mutex);
}

void image_begin(struct image *im)
{
    if (!im->is_staged)
        return;
    pthread_mutex_lock(&im->mutex);
    memset(im->copied, NOT_COPIED, (size_t)executor_schedule(im->x)->n_units);
    im->waited_s = 0;
    pthread_mutex_unlock(&im->mutex);
}

void image_copy(struct image *im)
{
    for (int u = 0; im->is_staged && u < executor_schedule(im->x)->n_units; u++)
        ensure_copied(im, u);
}

void image_before_update(void *arg, int unit)
{
    struct image *im = arg;
    pthread_mutex_lock(&im->mutex);
    bool is_copied = im->copied[unit] == COPIED;
    pthread_mutex_unlock(&im->mutex);
    if (is_copied)
        return;
    double start = clock_now_s();
    ensure_copied(im, unit);
    pthread_mutex_lock(&im->mutex);
    im->waited_s += clock_now_s() - start;
    pthread_mutex_unlock(&im->mutex);
}

double image_waited_s(struct image *im)
{
    pthread_mutex_lock(&im->mutex);
    double s = im->waited_s;
    pthread_mutex_unlock(&im->mutex);
    return s;
}

/* --- reading --- */

/* What of a span of the file lies in [at, at + n) goes to its place in the window. */
static void overlap(
    struct image *im, const void *from, uint64_t first, uint64_t len, uint64_t at, size_t n)
{
    uint64_t begin = first > at ? first : at;
    uint64_t end = first + len < at + n ? first + len : at + n;
    if (begin < end)
        memcpy(im->memory + (begin - at), (const char *)from + (begin - first), end - begin);
}

const void *image_at(void *arg, uint64_t at, size_t n, struct err *e)
{
    struct image *im = arg;
    if (im->is_staged)
        return im->memory + at;
    overlap(im, im->header.p, 0, im->header.len, at, n);
    for (size_t i = 0; i < im->n_pieces; i++)
        overlap(im, source(im, &im->piece[i]), im->first[i],
            (uint64_t)im->piece[i].count * sizeof(float), at, n);
    return im->memory;
}
