/* Setting up what comm_shm.c works with: sockets, descriptors, mappings. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "engine/comm_connect.h"
#include "engine/comm_shm.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

enum { HUGE_BYTES = 2 << 20, SPINS = 500, SPINS_CROWDED = 50 };

/* --- sockets --- */

static int port_of_socket(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return -1;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

static int port_of_peer(const char *address)
{
    const char *colon = strrchr(address, ':');
    return colon ? (int)strtol(colon + 1, NULL, 10) : -1;
}

/* In the namespace without files; the port tells runs with equal tokens (tests) apart. */
static socklen_t name_socket(
    struct sockaddr_un *a, const struct comm_options *o, int rank, int port)
{
    const int32_t text[3] = {'u', rank, port};
    char hex[SHA256_HEX];
    hash_hmac_sha256(o->token, COMM_TOKEN_BYTES, text, sizeof(text), hex);
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "berth-%.40s", hex);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static enum rc listen_here(struct shm *s, struct err *e)
{
    struct sockaddr_un a;
    socklen_t len = name_socket(&a, s->o, s->o->rank, port_of_socket(s->o->listen_fd));
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listen_fd < 0 || bind(s->listen_fd, (struct sockaddr *)&a, len) != 0 ||
        listen(s->listen_fd, COMM_MAX_LOCALS) != 0)
        return err_sys(e, RC_LIMIT, "cannot listen on a Unix socket");
    return RC_OK;
}

static bool is_same_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

enum rc shm_reach(struct shm *s, struct err *e)
{
    if (s->why.code) {
        *e = s->why;
        return e->code;
    }
    for (int i = s->me + 1; i < s->n; i++) {
        struct sockaddr_un a;
        int rank = s->first + i;
        socklen_t len = name_socket(&a, s->o, rank, port_of_peer(s->o->peers[rank]));
        s->fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (s->fd[i] < 0 || connect(s->fd[i], (struct sockaddr *)&a, len) != 0)
            return err_sys(
                e, RC_LIMIT, "rank %d cannot reach rank %d by a Unix socket", s->o->rank, rank);
        if (!is_same_user(s->fd[i]))
            return err_set(e, RC_LIMIT, "rank %d belongs to another user", rank);
    }
    return RC_OK;
}

static void accept_one(struct shm *s, double deadline)
{
    int rank, channel, fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    bool is_good = fd >= 0 && is_same_user(fd) &&
                   comm_welcome(s->o, fd, &rank, &channel, deadline) && channel == COMM_CHANNELS &&
                   rank >= s->first && rank < s->o->rank && s->fd[rank - s->first] < 0;
    if (is_good)
        s->fd[rank - s->first] = fd;
    else if (fd >= 0)
        close(fd);
}

/* Lower ranks first, then upwards, as with the other connections. */
static enum rc prove_all(struct shm *s, double deadline, struct err *e)
{
    for (int i = 0; i < s->me; i++)
        while (s->fd[i] < 0) {
            if (!comm_wait(s->listen_fd, POLLIN, deadline))
                return err_set(e, RC_LIMIT, "rank %d did not come to the Unix socket of rank %d",
                    s->first + i, s->o->rank);
            accept_one(s, deadline);
        }
    for (int i = s->me + 1; i < s->n; i++)
        if (!comm_greet(s->o, s->fd[i], COMM_CHANNELS, deadline))
            return err_set(e, RC_LIMIT,
                "rank %d did not prove on its Unix socket that it belongs to this run",
                s->first + i);
    return RC_OK;
}

/* --- descriptors --- */

union rights {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static bool send_fd(int to, int fd)
{
    char byte = 'm';
    union rights r = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = r.bytes, .msg_controllen = sizeof(r.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    return sendmsg(to, &m, MSG_NOSIGNAL) == 1;
}

/* -1 when none came. */
static int receive_fd(int from, double deadline)
{
    char byte;
    int fd = -1;
    union rights r = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = r.bytes, .msg_controllen = sizeof(r.bytes)};
    if (!comm_wait(from, POLLIN, deadline) ||
        recvmsg(from, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    return fd;
}

/* --- mappings --- */

/* A memory file that can neither grow nor shrink. */
static enum rc make_file(int *out, const char *what, size_t bytes, struct err *e)
{
    struct rlimit most;
    int fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(e, RC_LIMIT, "cannot create shared memory");
    enum rc rc = RC_OK;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes)
        rc = err_set(e, RC_LIMIT,
            "files are limited to %llu bytes and shared memory needs %llu; see ulimit -f",
            (unsigned long long)most.rlim_cur, (unsigned long long)bytes);
    else if (ftruncate(fd, (off_t)bytes) != 0 ||
             fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        rc = err_sys(
            e, RC_LIMIT, "cannot make %llu bytes of shared memory", (unsigned long long)bytes);
    if (rc)
        close(fd);
    else
        *out = fd;
    return rc;
}

/* At an address that huge pages can have; NULL on failure. */
static void *map_file(int fd, size_t bytes, bool is_own)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || (size_t)st.st_size < bytes)
        return NULL;
    char *room = mmap(
        NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    char *base = (char *)base_align_up((uintptr_t)room, HUGE_BYTES);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *end = base + base_align_up(bytes, page), *room_end = room + bytes + HUGE_BYTES;
    room_end = (char *)base_align_up((uintptr_t)room_end, page);
    if (base > room)
        munmap(room, (size_t)(base - room));
    if (room_end > end)
        munmap(end, (size_t)(room_end - end));
    int access = PROT_READ | (is_own ? PROT_WRITE : 0);
    if (mmap(base, bytes, access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(base, bytes);
        return NULL;
    }
    return base;
}

/* One page of each huge one is touched, the kernel then makes it huge whatever its setting for
 * shared memory (Linux 6.1). Where memory is in pieces some stay small, as with any memory. */
static bool make_huge(char *base, size_t bytes)
{
    const size_t portion = (size_t)64 << 20, whole = bytes / HUGE_BYTES * HUGE_BYTES;
    if (whole == 0)
        return true;
    madvise(base, whole, MADV_HUGEPAGE);
    *(volatile char *)base = 0;
    if (madvise(base, HUGE_BYTES, MADV_COLLAPSE) != 0)
        return false;
    for (size_t at = 0; at < whole; at += portion) {
        size_t n = whole - at < portion ? whole - at : portion;
        for (size_t i = 0; i < n; i += HUGE_BYTES)
            *(volatile char *)(base + at + i) = 0;
        madvise(base + at, n, MADV_COLLAPSE);
    }
    return true;
}

/* Give the own file to all, and map theirs into to[]. */
static enum rc swap_files(struct shm *s, int own, size_t bytes, void **to, bool is_writable,
    double deadline, struct err *e)
{
    for (int i = 0; i < s->n; i++)
        if (i != s->me && !send_fd(s->fd[i], own))
            return err_sys(e, RC_LIMIT, "cannot pass memory to rank %d", s->first + i);
    for (int i = 0; i < s->n; i++) {
        if (i == s->me)
            continue;
        int fd = receive_fd(s->fd[i], deadline);
        to[i] = fd >= 0 ? map_file(fd, bytes, is_writable) : NULL;
        if (fd >= 0)
            close(fd);
        if (!to[i])
            return err_set(e, RC_LIMIT, "the memory of rank %d cannot be mapped", s->first + i);
    }
    return RC_OK;
}

enum rc shm_connect(struct shm *s, struct err *e)
{
    double deadline = clock_now_s() + s->o->connect_deadline_s;
    int fd = -1;
    void **to = (void **)(void *)s->control;
    enum rc rc = make_file(&fd, "berth-control", sizeof(struct shm_control), e);
    if (!rc && !(to[s->me] = map_file(fd, sizeof(struct shm_control), true)))
        rc = err_sys(e, RC_LIMIT, "cannot map shared memory");
    if (!rc)
        memset(to[s->me], 0, sizeof(struct shm_control)); /* touched before the steps are timed */
    if (!rc)
        rc = prove_all(s, deadline, e);
    if (!rc)
        rc = swap_files(s, fd, sizeof(struct shm_control), to, true, deadline, e);
    if (fd >= 0)
        close(fd);
    return rc;
}

enum rc shm_map_slab(struct shm *s, size_t bytes, void **base, struct err *e)
{
    int fd = -1;
    void **to = (void **)(void *)s->slab;
    /* peers may still be touching theirs */
    double deadline = clock_now_s() + s->o->connect_deadline_s + (double)bytes / 64e6;
    s->slab_bytes = bytes;
    if (bytes == 0)
        return RC_OK;
    enum rc rc = make_file(&fd, "berth-slab", bytes, e);
    if (!rc && !(to[s->me] = map_file(fd, bytes, true)))
        rc = err_sys(e, RC_LIMIT, "cannot map %zu bytes of shared memory", bytes);
    if (!rc && !make_huge(to[s->me], bytes))
        rc = err_sys(e, RC_LIMIT, "shared memory gets no huge pages, which takes Linux 6.1");
    if (!rc)
        rc = swap_files(s, fd, bytes, to, false, deadline, e);
    if (!rc)
        *base = to[s->me];
    if (fd >= 0)
        close(fd);
    return rc;
}

size_t shm_control_bytes(const struct shm *s)
{
    return sizeof(struct shm_control);
}

/* --- life cycle --- */

/* More ranks than cores: whoever spins keeps the others from coming. */
static int spins_for(int ranks)
{
    cpu_set_t set;
    bool is_crowded = sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < ranks;
    return is_crowded ? SPINS_CROWDED : SPINS;
}

struct shm *shm_open_host(const struct comm_options *o)
{
    int first = o->rank, end = o->rank + 1;
    while (first > 0 && o->host_of[first - 1] == o->host_of[o->rank])
        first--;
    while (end < o->ranks && o->host_of[end] == o->host_of[o->rank])
        end++;
    if (end - first < 2)
        return NULL;
    struct shm *s = base_calloc(1, sizeof(*s));
    size_t n = (size_t)(end - first);
    *s = (struct shm){.o = o,
        .first = first,
        .n = end - first,
        .me = o->rank - first,
        .listen_fd = -1,
        .spins = spins_for(end - first),
        .fd = base_alloc(n * sizeof(*s->fd)),
        .control = base_calloc(n, sizeof(*s->control)),
        .slab = base_calloc(n, sizeof(*s->slab))};
    for (size_t i = 0; i < n; i++)
        s->fd[i] = -1;
    for (int i = 0; i < COMM_CHANNELS; i++)
        s->poll[i] = base_calloc(n, sizeof(struct pollfd));
    if (s->n > COMM_MAX_LOCALS)
        err_set(&s->why, RC_LIMIT, "%d ranks on one host, and memory is shared by %d at most", s->n,
            COMM_MAX_LOCALS);
    else
        listen_here(s, &s->why);
    return s;
}

void shm_close(struct shm *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++) {
        if (s->fd[i] >= 0)
            close(s->fd[i]);
        if (s->control[i])
            munmap(s->control[i], sizeof(struct shm_control));
        if (s->slab[i])
            munmap(s->slab[i], s->slab_bytes);
    }
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    for (int i = 0; i < COMM_CHANNELS; i++)
        free(s->poll[i]);
    free(s->slab);
    free(s->control);
    free(s->fd);
    free(s);
}
