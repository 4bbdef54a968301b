/* Files and folders: bounded reading, writing that is never seen half done, the user's paths. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct str;

/* Append the whole file to out; "-" is standard input. RC_NOT_FOUND when it cannot be opened,
 * RC_LIMIT when it is larger than max_bytes. */
enum rc file_read(struct str *out, const char *path, size_t max_bytes, struct err *e);

/* Write through a temporary name in the same folder, fsync, rename. A symbolic link at path is
 * followed, so the link survives; mode is for a new file, an old one keeps its own; a device or a
 * pipe is written to, never replaced. */
enum rc file_write(const char *path, const void *data, size_t len, unsigned mode, struct err *e);

/* Append one piece with a single write (O_APPEND), creating the file with mode. */
enum rc file_append(const char *path, const void *data, size_t len, unsigned mode, struct err *e);

/* Write all len bytes to a descriptor, retrying short writes. */
enum rc file_write_fd(int fd, const void *data, size_t len, const char *what, struct err *e);

/* mkdir -p. */
enum rc dir_make(const char *path, unsigned mode, struct err *e);
/* fsync a folder, so that renames in it are durable. */
enum rc dir_sync(const char *path, struct err *e);
/* Remove a folder and all below it; symbolic links are removed, not followed. Absent is success. */
enum rc dir_remove(const char *path, struct err *e);
bool file_exists(const char *path);
/* A file that has a size: no folder, device or pipe. Follows links. */
bool file_is_regular(const char *path);
/* Size in bytes, -1 when it cannot be told. */
int64_t file_size(const char *path);

/* "a/b" with exactly one slash between. Caller frees. */
char *path_join(const char *a, const char *b);

enum path_kind { PATH_CONFIG, PATH_CACHE, PATH_STATE, PATH_DATA };
/* The user's folder for a kind: $BERTH_HOME/KIND, else the XDG folder, else below $HOME or, when
 * that is not set, below the home of the password file.
 * Caller frees. Not created. */
char *path_user(enum path_kind kind);

#endif
