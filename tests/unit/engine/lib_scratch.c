#include "lib_scratch.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static const char form[] = "/tmp/berth-scratch-XXXXXX";
char scratch[sizeof(form)];

int scratch_make(void **state)
{
    (void)state;
    memcpy(scratch, form, sizeof(form));
    return mkdtemp(scratch) ? 0 : -1;
}

int scratch_remove(void **state)
{
    struct err e;
    (void)state;
    return dir_remove(scratch, &e) ? -1 : 0;
}
