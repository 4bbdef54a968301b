/* Host lists: which machines a run uses.
 *
 * Three forms, told apart by their content:
 *   plain      one host per line: [user@]HOST[:port] [key=value ...]   ('#' starts a comment)
 *   DeepSpeed  HOST slots=N                                            (a plain list with slots)
 *   JSON       an array, or {"hosts":[...]}, of objects with host, address, port, user, identity,
 *              jump, gpus, dir, exclude
 * HOST may hold ranges: node[01-04,07], gpu-[b-d]. IPv6 is written [::1]:22 or bare.
 * Keys: slots, user, port, identity, jump, dir (work folder on the node), address (where the other
 * nodes reach it), price (USD an hour for the node). */
#ifndef LAUNCHER_HOSTS_H
#define LAUNCHER_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct json;

enum { HOSTS_MAX = 4096, HOSTS_FILE_MAX_BYTES = 4 << 20 };

/* NULL or 0: not given. */
struct host {
    char *name;    /* what the user calls it; unique in the list with user and port */
    char *connect; /* name or address to connect to; name when NULL */
    char *user;
    int port;
    char *identity; /* private key file */
    char *jump;     /* [user@]host[:port] to go through */
    char *dir;
    char *address;
    int64_t slots;              /* ranks it may take */
    int64_t micro_usd_per_hour; /* -1: not stated */
    bool is_local;              /* this machine, without SSH */
    int line;                   /* where it was read, from 1; 0 for JSON */
};

struct hosts {
    struct host *v;
    size_t count;
};

/* Parse a list; source names it in sentences ("FILE line 3: ..."). At least one host. */
enum rc hosts_parse(
    struct hosts *out, const char *text, size_t len, const char *source, struct err *e);
/* A file ("-": standard input), or where no such file exists a list itself: "node[1-2],b:2222". */
enum rc hosts_load(struct hosts *out, const char *path_or_list, struct err *e);
void hosts_release(struct hosts *h);
/* This machine alone, without SSH; named "here". */
void hosts_here(struct hosts *out);

/* Keep the first n. */
void hosts_cut(struct hosts *h, size_t n);

/* "user@name:port", without what is not given; the caller frees it. */
char *host_label(const struct host *h);

/* The list as hosts.json of the run folder has it, and back. */
struct json *hosts_to_json(const struct hosts *h);
enum rc hosts_from_json(struct hosts *out, const struct json *v, const char *source, struct err *e);

/* Is dir a work folder on a node as --remote-dir and dir= may say it? */
enum rc hosts_check_dir(const char *dir, struct err *e);

#endif
