/* safetensors files: a JSON header of names, types, shapes and offsets, then the data.
 *
 * Reading trusts nothing: header length, JSON, types, shapes, offsets and the file's size must
 * agree exactly, with overflow checks, before anything is looked up. */
#ifndef ENGINE_SAFETENSORS_H
#define ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

struct st_reader;
struct st_writer;
struct str;

enum { ST_MAX_DIMS = 8, ST_MAX_HEADER_BYTES = 100000000 };

struct st_tensor {
    char *name;
    char dtype[12]; /* "F32", "BF16", ... */
    int dims;
    int64_t shape[ST_MAX_DIMS];
    uint64_t begin, end; /* bytes from the start of the data */
};

/* Bytes of an element of a type name, 0 for one we do not know (sub-byte types among them). */
int st_dtype_bytes(const char *dtype);

/* Append the header of n tensors, the bytes in front of the data; begin and end are set in the
 * given order. Returns the bytes of the data. */
uint64_t st_header(struct str *out, struct st_tensor *tensors, size_t n);

/* Create path and write the header for n tensors; begin and end are set here, in the given order.
 * Then hand over exactly the data, in that order. end syncs and closes and tells size and hash of
 * the whole file; abandon removes the file. */
enum rc st_create(
    struct st_writer **out, const char *path, struct st_tensor *tensors, size_t n, struct err *e);
enum rc st_write(struct st_writer *w, const void *data, size_t bytes, struct err *e);
enum rc st_finish(struct st_writer *w, uint64_t *bytes, struct hash128 *hash, struct err *e);
void st_abandon(struct st_writer *w);

enum rc st_open(struct st_reader **out, const char *path, struct err *e);
void st_close(struct st_reader *r);
/* Borrowed from the reader; NULL when there is none. */
const struct st_tensor *st_find(const struct st_reader *r, const char *name);
size_t st_count(const struct st_reader *r);
const struct st_tensor *st_at(const struct st_reader *r, size_t i);
/* Bytes [offset, offset + bytes) of a tensor. */
enum rc st_read(struct st_reader *r, const struct st_tensor *t, uint64_t offset, void *out,
    size_t bytes, struct err *e);

#endif
