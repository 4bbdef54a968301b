#include "engine/checkpoint_image.h"

#include <assert.h>
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
#include "planner/checkpoint_room.h"

/* A stretch of the file. */
struct span {
    uint64_t first, bytes;
};

_Static_assert((int)CHECKPOINT_WINDOW_BYTES == (int)DURABLE_PIECE_BYTES, "as is planned");

enum copied { NOT_COPIED, BEING_COPIED, COPIED };

struct image {
    struct executor *x;
    struct piece *piece;
    size_t n_pieces;
    uint64_t *first;      /* byte of each piece in the file */
    uint64_t *unit_first; /* byte of each unit, and the end */
    struct str header;
    uint64_t bytes;
    bool is_staged;
    char *memory; /* the file, or a window of one chunk */
    size_t memory_bytes;
    struct hash_stream *hash;
    uint64_t hashed; /* bytes of the file, from the front */
    bool has_thread;
    pthread_t thread;      /* copies and hashes */
    pthread_mutex_t mutex; /* guards what follows, and hashed when there is a thread */
    pthread_cond_t changed;
    unsigned char *copied; /* by chunk of DURABLE_PIECE_BYTES; enum copied */
    size_t n_chunks;
    bool is_begun, is_copying, is_closing;
    double waited_s;
};

/* --- filling --- */

/* Bytes that two stretches of the file share; NULL-sized without any. */
static struct span overlap(struct span a, struct span b)
{
    uint64_t first = a.first > b.first ? a.first : b.first;
    uint64_t end = a.first + a.bytes < b.first + b.bytes ? a.first + a.bytes : b.first + b.bytes;
    return (struct span){first, end > first ? end - first : 0};
}

/* Pieces and chunks begin at whole numbers: headers are padded, chunks are of a power of two. */
static enum rc fill(const struct image *im, char *to, uint64_t at, size_t n, struct err *e)
{
    enum rc rc = RC_OK;
    struct span chunk = {at, n}, s = overlap(chunk, (struct span){0, im->header.len});
    if (s.bytes > 0)
        memcpy(to + (s.first - at), im->header.p + s.first, s.bytes);
    for (size_t i = 0; i < im->n_pieces && im->first[i] < at + n && !rc; i++) {
        const struct piece *p = &im->piece[i];
        s = overlap(chunk, (struct span){im->first[i], (uint64_t)p->count * sizeof(float)});
        struct state_range r = {p->unit_first + (int64_t)((s.first - im->first[i]) / sizeof(float)),
            (int64_t)(s.bytes / sizeof(float))};
        if (r.count > 0)
            rc = executor_read_state(
                im->x, p->unit, p->kind, r, (float *)(void *)(to + (s.first - at)), e);
    }
    return rc;
}

static size_t chunk_bytes(const struct image *im, size_t chunk)
{
    uint64_t left = im->bytes - chunk * DURABLE_PIECE_BYTES;
    return left < DURABLE_PIECE_BYTES ? left : DURABLE_PIECE_BYTES;
}

/* Whoever comes first copies; the others wait for it. */
static void ensure_copied(struct image *im, size_t chunk)
{
    pthread_mutex_lock(&im->mutex);
    if (im->copied[chunk] == NOT_COPIED) {
        im->copied[chunk] = BEING_COPIED;
        pthread_mutex_unlock(&im->mutex);
        uint64_t at = chunk * DURABLE_PIECE_BYTES;
        /* what is staged is in memory already: nothing can fail */
        fill(im, im->memory + at, at, chunk_bytes(im, chunk), NULL);
        pthread_mutex_lock(&im->mutex);
        im->copied[chunk] = COPIED;
        pthread_cond_broadcast(&im->changed);
    }
    while (im->copied[chunk] != COPIED)
        pthread_cond_wait(&im->changed, &im->mutex);
    pthread_mutex_unlock(&im->mutex);
}

/* One after the other, as a file is written. */
static void copy_all(struct image *im)
{
    bool is_closing = false;
    for (size_t i = 0; i < im->n_chunks && !is_closing; i++) {
        ensure_copied(im, i);
        size_t n = chunk_bytes(im, i);
        hash_stream_add(im->hash, im->memory + i * DURABLE_PIECE_BYTES, n);
        pthread_mutex_lock(&im->mutex);
        im->hashed += n;
        is_closing = im->is_closing;
        pthread_cond_broadcast(&im->changed);
        pthread_mutex_unlock(&im->mutex);
    }
}

static void *copier_main(void *arg)
{
    struct image *im = arg;
    for (;;) {
        pthread_mutex_lock(&im->mutex);
        while (!im->is_begun && !im->is_closing)
            pthread_cond_wait(&im->changed, &im->mutex);
        bool is_over = im->is_closing;
        im->is_begun = false;
        im->is_copying = true;
        pthread_mutex_unlock(&im->mutex);
        if (is_over)
            return NULL;
        copy_all(im);
        pthread_mutex_lock(&im->mutex);
        im->is_copying = false;
        pthread_cond_broadcast(&im->changed);
        pthread_mutex_unlock(&im->mutex);
    }
}

/* --- life cycle --- */

static void lay_out(struct image *im)
{
    const struct schedule *s = executor_schedule(im->x);
    im->n_pieces = checkpoint_pieces(s, comm_rank(executor_comm(im->x)), &im->piece);
    struct st_tensor *t = base_calloc(im->n_pieces + 1, sizeof(*t));
    im->first = base_calloc(im->n_pieces + 1, sizeof(*im->first));
    im->unit_first = base_calloc((size_t)s->n_units + 1, sizeof(*im->unit_first));
    for (size_t i = 0; i < im->n_pieces; i++)
        t[i] = (struct st_tensor){
            .name = im->piece[i].name, .dtype = "F32", .dims = 1, .shape = {im->piece[i].count}};
    uint64_t data = st_header(&im->header, t, im->n_pieces);
    im->bytes = im->header.len + data;
    size_t i = 0;
    for (int u = 0; u < s->n_units; u++) {
        im->unit_first[u] = im->header.len + (i < im->n_pieces ? t[i].begin : data);
        for (; i < im->n_pieces && im->piece[i].unit == u; i++)
            im->first[i] = im->header.len + t[i].begin;
    }
    im->unit_first[s->n_units] = im->bytes;
    im->n_chunks = (im->bytes + DURABLE_PIECE_BYTES - 1) / DURABLE_PIECE_BYTES;
    free(t);
}

static enum rc map_memory(struct image *im, struct err *e)
{
    im->memory_bytes = (size_t)checkpoint_room_of(executor_schedule(im->x), im->is_staged);
    assert(!im->is_staged || im->memory_bytes >= base_align_up(im->bytes, DURABLE_ALIGN));
    void *p =
        mmap(NULL, im->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_sys(e, RC_LIMIT,
            "cannot map %zu bytes to copy the state of a checkpoint into; '--checkpoint sync' does "
            "without",
            im->memory_bytes);
    im->memory = p;
    madvise(p, im->memory_bytes, MADV_HUGEPAGE);
    memset(p, 0, im->memory_bytes); /* there from the start: no page comes during a save */
    return RC_OK;
}

enum rc image_new(struct image **out, struct executor *x, bool is_staged, struct err *e)
{
    struct image *im = base_calloc(1, sizeof(*im));
    im->x = x;
    im->is_staged = is_staged;
    im->header = (struct str)STR_INIT;
    im->hash = hash_stream_new();
    pthread_mutex_init(&im->mutex, NULL);
    pthread_cond_init(&im->changed, NULL);
    lay_out(im);
    im->copied = base_alloc(im->n_chunks);
    memset(im->copied, COPIED, im->n_chunks);
    enum rc rc = map_memory(im, e);
    if (!rc && is_staged) {
        im->has_thread = pthread_create(&im->thread, NULL, copier_main, im) == 0;
        if (!im->has_thread)
            rc = err_set(e, RC_LIMIT, "cannot start the thread that copies for checkpoints");
    }
    *out = rc ? NULL : im;
    if (rc)
        image_free(im);
    return rc;
}

static void end_thread(struct image *im)
{
    if (!im->has_thread)
        return;
    pthread_mutex_lock(&im->mutex);
    im->is_closing = true;
    pthread_cond_broadcast(&im->changed);
    pthread_mutex_unlock(&im->mutex);
    pthread_join(im->thread, NULL);
}

void image_free(struct image *im)
{
    if (!im)
        return;
    end_thread(im);
    if (im->memory)
        munmap(im->memory, im->memory_bytes);
    str_release(&im->header);
    hash_stream_free(im->hash);
    free(im->piece);
    free(im->first);
    free(im->unit_first);
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

void image_begin(struct image *im)
{
    pthread_mutex_lock(&im->mutex);
    while (im->is_copying) /* for a save that failed */
        pthread_cond_wait(&im->changed, &im->mutex);
    hash_stream_reset(im->hash);
    im->hashed = 0;
    im->waited_s = 0;
    if (im->is_staged)
        memset(im->copied, NOT_COPIED, im->n_chunks);
    im->is_begun = im->has_thread;
    pthread_cond_broadcast(&im->changed);
    pthread_mutex_unlock(&im->mutex);
}

static bool is_copied(struct image *im, size_t from, size_t end)
{
    bool is_all = true;
    pthread_mutex_lock(&im->mutex);
    for (size_t i = from; i < end; i++)
        is_all = is_all && im->copied[i] == COPIED;
    pthread_mutex_unlock(&im->mutex);
    return is_all;
}

/* A chunk at the border holds some of the next unit too, which is not updated before it is copied.
 */
void image_before_update(void *arg, int unit)
{
    struct image *im = arg;
    size_t from = im->unit_first[unit] / DURABLE_PIECE_BYTES;
    size_t end = (im->unit_first[unit + 1] + DURABLE_PIECE_BYTES - 1) / DURABLE_PIECE_BYTES;
    if (is_copied(im, from, end))
        return;
    double start = clock_now_s();
    for (size_t i = from; i < end; i++)
        ensure_copied(im, i);
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

static const void *staged_at(struct image *im, uint64_t at, size_t n)
{
    pthread_mutex_lock(&im->mutex);
    while (im->hashed < at + n)
        pthread_cond_wait(&im->changed, &im->mutex);
    pthread_mutex_unlock(&im->mutex);
    return im->memory + at;
}

const void *image_at(void *arg, uint64_t at, size_t n, struct err *e)
{
    struct image *im = arg;
    if (im->is_staged)
        return staged_at(im, at, n);
    if (fill(im, im->memory, at, n, e))
        return NULL;
    if (at == im->hashed) {
        hash_stream_add(im->hash, im->memory, n);
        im->hashed += n;
    }
    return im->memory;
}

struct hash128 image_hash(struct image *im)
{
    return hash_stream_end(im->hash);
}
