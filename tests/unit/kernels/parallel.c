#include "kernels/parallel.h"

#include "tests/unit/kernels/support.h"

struct tally {
    unsigned char *seen; /* how often each item was run */
};

static void count(void *arg, int64_t first, int64_t last)
{
    struct tally *t = arg;
    for (int64_t i = first; i < last; i++)
        t->seen[i]++;
}

static void every_item_runs_once_for_any_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = {0, 1, 2, 3, 7};
    static const int64_t items[] = {0, 1, 2, 3, 6, 7, 8, 1000};
    for (size_t t = 0; t < BASE_COUNT(threads); t++) {
        struct pool *pool = pool_new(threads[t]);
        assert_int_equal(pool_threads(pool), threads[t] < 1 ? 1 : threads[t]);
        for (size_t i = 0; i < BASE_COUNT(items); i++) {
            struct tally tally = {base_calloc((size_t)items[i] + 1, 1)};
            pool_run(pool, items[i], count, &tally);
            for (int64_t j = 0; j < items[i]; j++)
                assert_int_equal(tally.seen[j], 1);
            assert_int_equal(tally.seen[items[i]], 0);
            free(tally.seen);
        }
        pool_free(pool);
    }
}

/* Jobs in close succession: each must be finished before the next begins. */
static void jobs_do_not_overlap(void **state)
{
    (void)state;
    enum { ITEMS = 64, JOBS = 250 };
    struct pool *pool = pool_new(4);
    struct tally tally = {base_calloc(ITEMS, 1)};
    for (int job = 1; job <= JOBS; job++) {
        pool_run(pool, ITEMS, count, &tally);
        for (int i = 0; i < ITEMS; i++)
            assert_int_equal(tally.seen[i], job);
    }
    free(tally.seen);
    pool_free(pool);
}

static void no_pool_means_the_caller(void **state)
{
    (void)state;
    unsigned char seen[5] = {0};
    struct tally tally = {seen};
    pool_run(NULL, 5, count, &tally);
    for (int i = 0; i < 5; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(pool_threads(NULL), 1);
    pool_free(NULL);
}

static void tables_are_found_by_name(void **state)
{
    (void)state;
    assert_null(kernels_by_name("v9"));
    assert_null(kernels_by_name(""));
    const struct kernels *best = kernels_best();
    assert_ptr_equal(kernels_by_name(best->name), best);
    EACH_TABLE(k)
    if (k != gpu_table_on_cpu()) {
        assert_string_equal(kernels_by_name(k->name)->name, k->name);
        assert_true(strlen(kernels_isa_name(k)) > 3);
    }
}

int test_parallel(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once_for_any_number_of_threads),
        cmocka_unit_test(jobs_do_not_overlap),
        cmocka_unit_test(no_pool_means_the_caller),
        cmocka_unit_test(tables_are_found_by_name),
    };
    return cmocka_run_group_tests_name("kernels/parallel", tests, NULL, NULL);
}
