#include "launcher/transport.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void exec_init(struct exec *x, const char *command)
{
    *x = (struct exec){.command = base_strdup(command), .status = -1};
    str_init(&x->in, 0);
    str_init(&x->out, EXEC_MAX_OUTPUT);
    str_init(&x->err, EXEC_MAX_OUTPUT);
}

void exec_release(struct exec *x)
{
    free(x->command);
    x->command = NULL;
    str_release(&x->in);
    str_release(&x->out);
    str_release(&x->err);
}

char *shell_wrap(const char *script)
{
    struct str s = STR_INIT;
    assert(!strchr(script, '\n'));
    str_add(&s, "/bin/sh -c ");
    str_add_shell_quoted(&s, script);
    return str_steal(&s);
}
