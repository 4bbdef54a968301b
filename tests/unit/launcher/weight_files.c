#include "launcher/weight_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

static char root[] = "/tmp/berth-weight-files-XXXXXX";

static void write_in(const char *dir, const char *name, const char *text)
{
    struct err e = ERR_INIT;
    char *folder = path_join(root, dir), *path = path_join(folder, name);
    assert_int_equal(dir_make(folder, 0755, &e), RC_OK);
    assert_int_equal(file_write(path, text, strlen(text), 0644, &e), RC_OK);
    free(folder);
    free(path);
}

static enum rc open_in(struct weight_files *w, const char *name, struct err *e)
{
    char *path = path_join(root, name);
    enum rc rc = weight_files_open(w, path, e);
    free(path);
    return rc;
}

static void a_folder_is_its_weights_and_config_and_nothing_else(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct weight_files w;
    write_in("one", "model.safetensors", "data");
    write_in("one", "config.json", "{}");
    write_in("one", "README.md", "not sent");
    assert_int_equal(open_in(&w, "one", &e), RC_OK);
    assert_int_equal(w.count, 2);
    assert_int_equal(w.bytes, 6);
    assert_string_equal(w.name, "");
    assert_string_equal(weight_files_name(&w, 0), "config.json");
    char *dir = weight_files_node_path(&w, "/srv/berth", w.name);
    char *want = base_printf("/srv/berth/data/%s", w.sha256);
    assert_string_equal(dir, want);
    free(dir);
    free(want);
    weight_files_release(&w);
}

static void one_file_is_named_in_its_folder(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct weight_files w;
    write_in("named", "tuned.safetensors", "data");
    assert_int_equal(open_in(&w, "named/tuned.safetensors", &e), RC_OK);
    assert_int_equal(w.count, 1);
    assert_string_equal(w.name, "tuned.safetensors");
    char *path = weight_files_node_path(&w, "/srv/berth", w.name);
    assert_non_null(strstr(path, "/tuned.safetensors"));
    free(path);
    weight_files_release(&w);
}

static void the_name_on_the_nodes_is_that_of_the_contents(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct weight_files a, b, c;
    write_in("x", "model.safetensors", "same");
    write_in("y", "model.safetensors", "same");
    write_in("z", "model.safetensors", "other");
    assert_int_equal(open_in(&a, "x", &e), RC_OK);
    assert_int_equal(open_in(&b, "y", &e), RC_OK);
    assert_int_equal(open_in(&c, "z", &e), RC_OK);
    assert_string_equal(a.sha256, b.sha256);
    assert_string_not_equal(a.sha256, c.sha256);
    weight_files_release(&a);
    weight_files_release(&b);
    weight_files_release(&c);
}

#define INDEX "model.safetensors.index.json"

static void an_index_names_files_beside_it_only(void **state)
{
    (void)state;
    static const struct {
        const char *index, *word; /* NULL: taken */
    } cases[] = {
        {"{\"weight_map\":{\"p\":\"a.safetensors\",\"q\":\"b.safetensors\",\"r\":\"a.safetensors\"}"
         "}",
            NULL},
        {"{\"weight_map\":{\"p\":\"../one/model.safetensors\"}}", "which is no file beside it"},
        {"{\"weight_map\":{\"p\":\"/etc/passwd\"}}", "which is no file beside it"},
        {"{\"weight_map\":{\"p\":7}}", "which is no file beside it"},
        {"{\"weight_map\":{\"p\":\"gone.safetensors\"}}", "gone.safetensors"},
        {"{\"weights\":{}}", "weight_map"},
        {"[", "not valid JSON"},
    };
    write_in("many", "a.safetensors", "1");
    write_in("many", "b.safetensors", "22");
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        struct weight_files w;
        write_in("many", INDEX, cases[i].index);
        enum rc rc = open_in(&w, i % 2 ? "many" : "many/" INDEX, &e);
        if (rc != (cases[i].word ? RC_INVALID : RC_OK))
            fail_msg("case %zu: %d, %s", i, rc, e.msg);
        if (rc && !strstr(e.msg, cases[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, cases[i].word);
        if (!rc)
            assert_int_equal(w.count, 3);
        weight_files_release(&w);
    }
}

static void what_is_not_there_is_said(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct weight_files w;
    write_in("empty", "notes.txt", "x");
    assert_int_equal(open_in(&w, "nowhere", &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "cannot open"));
    weight_files_release(&w);
    assert_int_equal(open_in(&w, "empty", &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "holds neither model.safetensors nor"));
    weight_files_release(&w);
}

static void a_config_of_another_model_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct weight_files w;
    struct model m, other;
    struct json *config;
    assert_int_equal(model_find(&m, "tiny-llama", &e), RC_OK);
    assert_int_equal(model_to_config(&config, &m, "float32", &e), RC_OK);
    char *text = json_print(config, true);
    write_in("of-llama", "model.safetensors", "x");
    write_in("of-llama", "config.json", text);
    free(text);
    json_free(config);
    assert_int_equal(open_in(&w, "of-llama", &e), RC_OK);
    assert_int_equal(weight_files_check(&w, &m, &e), RC_OK);
    other = m;
    other.ffn++;
    assert_int_equal(weight_files_check(&w, &other, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "its ffn is 176, not 177"));
    weight_files_release(&w);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : 1;
}

static int remove_root(void **state)
{
    (void)state;
    struct err e;
    return dir_remove(root, &e) ? 1 : 0;
}

int test_weight_files(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_its_weights_and_config_and_nothing_else),
        cmocka_unit_test(one_file_is_named_in_its_folder),
        cmocka_unit_test(the_name_on_the_nodes_is_that_of_the_contents),
        cmocka_unit_test(an_index_names_files_beside_it_only),
        cmocka_unit_test(what_is_not_there_is_said),
        cmocka_unit_test(a_config_of_another_model_is_refused),
    };
    return cmocka_run_group_tests_name("launcher/weight_files", tests, make_root, remove_root);
}
