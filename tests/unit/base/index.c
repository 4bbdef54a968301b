#include "base/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MEMBERS = 5000 };

static bool same_number(const void *array, size_t i, const void *key)
{
    return ((const int *)array)[i] == *(const int *)key;
}

/* Also where all hashes are the same. */
static void finds_what_was_added_and_nothing_else(void **state)
{
    (void)state;
    static int all[MEMBERS];
    for (int spread = 0; spread < 2; spread++) {
        struct index x = {0};
        int n = spread ? MEMBERS : 100;
        for (int i = 0; i < n; i++) {
            all[i] = 3 * i;
            uint64_t hash = spread ? index_hash_word(0, (uint64_t)all[i]) : 7;
            assert_int_equal(index_find(&x, hash, same_number, all, &all[i]), INDEX_NONE);
            index_add(&x, hash, (size_t)i);
        }
        for (int key = 0; key < 3 * n; key++) {
            uint64_t hash = spread ? index_hash_word(0, (uint64_t)key) : 7;
            ptrdiff_t at = index_find(&x, hash, same_number, all, &key);
            assert_int_equal(at, key % 3 == 0 ? key / 3 : INDEX_NONE);
        }
        index_release(&x);
    }
}

static void texts_hash_by_their_content_and_their_bounds(void **state)
{
    (void)state;
    char copy[] = "h100";
    assert_true(index_hash_text(0, "h100") == index_hash_text(0, copy));
    assert_true(index_hash_text(0, "h100") != index_hash_text(0, "h200"));
    uint64_t ab_c = index_hash_text(index_hash_text(0, "ab"), "c");
    assert_true(ab_c != index_hash_text(index_hash_text(0, "a"), "bc"));
}

int test_index(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_added_and_nothing_else),
        cmocka_unit_test(texts_hash_by_their_content_and_their_bounds),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
