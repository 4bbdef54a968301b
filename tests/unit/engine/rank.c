#include "engine/rank.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "lib_count.h"
#include "planner/plan_file.h"
#include "planner/search.h"
#include "run/message.h"
#include "run/spec.h"

enum { STEPS = 100000, FIRST_COUNTED = 2, LAST_COUNTED = 12 };

/* A plan for one rank on one core. */
static struct json *make_plan(bool validates)
{
    struct err e = ERR_INIT;
    struct rates *rates = NULL;
    struct search *found = NULL;
    struct job j;
    struct offer o;
    struct offers *l = offers_new();
    job_init(&j);
    offer_init(&o);
    offer_put_text(&o, OFFER_PROVIDER, "test", PROVENANCE_REPORTED);
    offer_put_text(&o, OFFER_ID, "box", PROVENANCE_REPORTED);
    o.device = DEVICE_CPU;
    o.gpus_per_node = 1;
    o.vcpus = 1;
    o.ram_bytes = 4LL << 30;
    offer_settle(&o);
    assert_int_equal(rates_builtin(&rates, &e), RC_OK);
    assert_int_equal(offers_add(l, &o, &e), RC_OK);
    assert_int_equal(model_find(&j.model, "tiny-llama", &e), RC_OK);
    j.has_model = true;
    j.seq = 32;
    j.global_batch_tokens = 64;
    j.tokens = STEPS * j.global_batch_tokens;
    str_copy(j.eval_data, sizeof j.eval_data, validates ? "host:/unused" : "");
    assert_int_equal(job_finish(&j, &e), RC_OK);
    struct search_input in = {.job = &j, .offers = l, .rates = rates};
    assert_int_equal(search_run(&found, &in, &e), RC_OK);
    assert_true(found->n_plans > 0);
    struct json *v = plan_file_make(&found->plans[0], &j, &o, rates, "9.9", NULL);
    search_free(found);
    rates_free(rates);
    offers_free(l);
    job_release(&j);
    return v;
}

static void write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char *path = path_join(dir, name);
    struct err e = ERR_INIT;
    assert_int_equal(file_write(path, bytes, n, 0600, &e), RC_OK);
    free(path);
}

struct run_kind {
    const char *training;
    int64_t every_steps; /* between checkpoints; 0: none, and all tokens are 0 */
    int64_t eval_tokens; /* of each validation, every 4 steps; 0: none */
};

/* Tokens are bytes of a fixed sequence, or zeros. */
static struct data_sources source_in(const char *dir)
{
    struct data_sources s = {base_calloc(1, sizeof(*s.v)), 1};
    s.v[0] =
        (struct data_source){.path = path_join(dir, "tokens"), .kind = DATA_UINT16, .weight = 1};
    return s;
}

static void make_run_dir(const char *dir, const struct run_kind *r)
{
    static unsigned char bytes[8192];
    struct run_spec s;
    struct err e = ERR_INIT;
    run_spec_init(&s);
    assert_int_equal(json_parse(&s.training, r->training, strlen(r->training), &e), RC_OK);
    s.checkpoint.every_steps = r->every_steps;
    for (size_t i = 0; i < sizeof(bytes); i += 2) /* uint16, below 256 */
        bytes[i] = r->every_steps ? (unsigned char)(i * i * 2654435761u >> 16) : 0;
    snprintf(s.id, sizeof(s.id), "20261130-083000-abcd");
    memset(s.token, 'a', sizeof(s.token) - 1);
    run_spec_add_host(&s, "here", "127.0.0.1", 0, 1);
    s.steps = STEPS;
    s.data = source_in(dir);
    if (r->eval_tokens > 0)
        s.evaluation = (struct run_evaluation){source_in(dir), 4, r->eval_tokens};
    s.plan = make_plan(r->eval_tokens > 0);
    struct json *v = run_spec_to_json(&s);
    char *text = json_print(v, false);
    write_file(dir, "tokens", bytes, sizeof(bytes));
    write_file(dir, RUN_FILE_SPEC, text, strlen(text));
    free(text);
    json_free(v);
    run_spec_release(&s);
}

/* The agent's end of the line; it allocates nothing while counting. */
struct agent {
    int fd;
    char buf[1 << 16];
    size_t len;
    bool counts;      /* allocations, and ends the run afterwards */
    int64_t stops_at; /* ends the run at this step; 0: not */
    int64_t steps;    /* highest seen */
    int allocations;
    int spikes, rollbacks, validations;
    double validation_loss[2]; /* the first and the last */
    int64_t validation_tokens;
    int64_t rolled_back_to;
    char failure[512];
    bool is_stopped; /* the rank said so, after it was told to stop */
};

static void say(struct agent *a, const char *line)
{
    if (send(a->fd, line, strlen(line), MSG_NOSIGNAL) < 0)
        perror("send");
}

static void take_line(struct agent *a, const char *line)
{
    char answer[128];
    const char *port = strstr(line, "\"port\":"), *step = strstr(line, "\"step\":");
    if (strstr(line, "\"event\":\"listening\"") && port) {
        snprintf(answer, sizeof(answer),
            "{\"cmd\":\"peers\",\"first\":0,\"peers\":[\"127.0.0.1:%ld\"]}\n",
            strtol(port + 7, NULL, 10));
        say(a, answer);
    } else if (strstr(line, "\"event\":\"step\"") && step) {
        a->steps = strtoll(step + 7, NULL, 10);
        a->spikes += strstr(line, "\"is_spike\":true") != NULL;
        if (a->counts && a->steps == FIRST_COUNTED)
            count_start();
        if (a->stops_at && a->steps == a->stops_at)
            say(a, "{\"cmd\":\"stop\"}\n");
        if (a->counts && a->steps == LAST_COUNTED) {
            a->allocations = count_stop();
            say(a, "{\"cmd\":\"stop\"}\n");
        }
    }
    if (strstr(line, "\"event\":\"evaluation\"") && step) {
        a->validations++;
        const char *loss = strstr(line, "\"loss\":"), *tokens = strstr(line, "\"tokens\":");
        assert(loss && tokens && strtoll(step + 7, NULL, 10) % 4 == 0);
        a->validation_loss[a->validations > 1] = strtod(loss + 7, NULL);
        a->validation_tokens = strtoll(tokens + 9, NULL, 10);
    }
    if (strstr(line, "\"event\":\"rollback\"") && step) {
        a->rollbacks++;
        a->rolled_back_to = strtoll(step + 7, NULL, 10);
    }
    if (strstr(line, "\"event\":\"failed\""))
        snprintf(a->failure, sizeof(a->failure), "%.500s", line);
    a->is_stopped |= strstr(line, "\"event\":\"stopped\"") != NULL;
}

static void *agent_main(void *arg)
{
    struct agent *a = arg;
    ssize_t n;
    while ((n = read(a->fd, a->buf + a->len, sizeof(a->buf) - 1 - a->len)) > 0) {
        char *nl, *line = a->buf;
        a->len += (size_t)n;
        a->buf[a->len] = '\0';
        while ((nl = strchr(line, '\n'))) {
            *nl = '\0';
            take_line(a, line);
            line = nl + 1;
        }
        a->len -= (size_t)(line - a->buf);
        memmove(a->buf, line, a->len + 1);
    }
    return NULL;
}

/* A rank with this training object, in this process; its exit status. */
static int run_rank(struct agent *a, struct run_kind kind)
{
    char dir[] = "/tmp/berth-rank-XXXXXX";
    assert_non_null(mkdtemp(dir));
    make_run_dir(dir, &kind);
    int pair[2], kept = fcntl(MSG_CONTROL_FD, F_DUPFD_CLOEXEC, 10);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    a->fd = fcntl(pair[0], F_DUPFD_CLOEXEC, 10);
    int other = fcntl(pair[1], F_DUPFD_CLOEXEC, 10);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(dup2(other, MSG_CONTROL_FD), MSG_CONTROL_FD);
    close(other);

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, agent_main, a), 0);
    char words[][8] = {"rank", "--dir", "--rank", "0"};
    char *argv[] = {words[0], words[1], dir, words[2], words[3], NULL};
    int status = rank_main(5, argv);
    close(MSG_CONTROL_FD);
    pthread_join(thread, NULL);
    if (kept >= 0) {
        dup2(kept, MSG_CONTROL_FD);
        close(kept);
    }
    close(a->fd);
    struct err e = ERR_INIT;
    assert_int_equal(dir_remove(dir, &e), RC_OK);
    return status;
}

/* The step that ends a run early is not validated; which one it is depends on when the word comes.
 */
static void validated_every_fourth_step(const struct agent *a)
{
    assert_true(a->validations == a->steps / 4 || a->validations == (a->steps - 1) / 4);
}

static void after_the_first_steps_the_loop_of_a_rank_allocates_nothing(void **state)
{
    (void)state;
    static struct agent a = {.counts = true};
    assert_int_equal(run_rank(&a, (struct run_kind){"{}", 0, 64}), 0);
    assert_true(a.steps >= LAST_COUNTED);
    assert_true(a.is_stopped);
    assert_int_equal(a.allocations, 0);
    validated_every_fourth_step(&a);
    assert_int_equal(a.validation_tokens, 64);
}

/* The file has 127 samples of 32 tokens, of which the last lacks a target: all are used, none
 * twice. */
static void validation_takes_what_there_is_and_falls_with_training(void **state)
{
    (void)state;
    static struct agent a = {.stops_at = 37};
    assert_int_equal(run_rank(&a, (struct run_kind){"{\"lr\": 3e-3}", 100, 1 << 20}), 0);
    validated_every_fourth_step(&a);
    assert_int_equal(a.validation_tokens, 127 * 32);
    assert_true(a.validation_loss[1] < a.validation_loss[0]);
    assert_true(a.validation_loss[0] < 6.5); /* ln 256 = 5.5 */
}

/* With such a limit about every second step is a spike, so that soon three in a row are. The
 * checkpoint of step 20 is there by then. */
#define NERVOUS "\"lr\": 1e-3, \"spike_sigma\": 1e-9, \"spike\": \"skip\""

static void a_run_that_diverges_goes_back_once_and_ends_when_it_does_not_help(void **state)
{
    (void)state;
    static struct agent a;
    assert_int_equal(
        run_rank(&a, (struct run_kind){"{" NERVOUS ", \"divergence\": \"rollback\"}", 20, 0}), 1);
    assert_true(a.spikes >= 3);
    assert_true(a.rollbacks >= 1);
    assert_true(a.rolled_back_to >= 20 && a.rolled_back_to % 20 == 0);
    assert_non_null(strstr(a.failure, "no newer checkpoint"));
}

static void a_run_that_diverges_ends_and_keeps_its_checkpoint(void **state)
{
    (void)state;
    static struct agent a;
    assert_int_equal(run_rank(&a, (struct run_kind){"{" NERVOUS "}", 20, 0}), 1);
    assert_int_equal(a.rollbacks, 0);
    assert_non_null(strstr(a.failure, "without an update"));
}

int test_rank(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_the_first_steps_the_loop_of_a_rank_allocates_nothing),
        cmocka_unit_test(validation_takes_what_there_is_and_falls_with_training),
        cmocka_unit_test(a_run_that_diverges_goes_back_once_and_ends_when_it_does_not_help),
        cmocka_unit_test(a_run_that_diverges_ends_and_keeps_its_checkpoint),
    };
    return cmocka_run_group_tests_name("rank", tests, NULL, NULL);
}
