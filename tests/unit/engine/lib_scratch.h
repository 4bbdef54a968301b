/* A folder for the files of a group of tests. */
#ifndef TESTS_ENGINE_LIB_SCRATCH_H
#define TESTS_ENGINE_LIB_SCRATCH_H

/* Its path, between the two, which are for cmocka_run_group_tests. */
extern char scratch[];
int scratch_make(void **state);
int scratch_remove(void **state);

#endif
