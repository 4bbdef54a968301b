#include "base/str.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct str s = STR_INIT;
    const char *shell = args_operand(args, 0);
    bool is_known = help_completion(&s, shell);
    if (is_known)
        out_whole_text(out, "completion/1", "shell", shell, str_text(&s));
    str_release(&s);
    if (!is_known)
        return err_set(e, RC_USAGE, "unknown shell '%s'; known are bash, zsh and fish", shell);
    return RC_OK;
}

const struct command CMD_COMPLETION = {
    .name = "completion",
    .topic = COMMAND_SELF,
    .summary = "print a completion script for a shell",
    .operands = "bash|zsh|fish",
    .min_operands = 1,
    .max_operands = 1,
    .about = "Load it in the shell's start file, or put it where the shell looks for completions.",
    .examples = (const char *const[]){"source <(berth completion bash)",
        "berth completion zsh > ~/.zfunc/_berth",
        "berth completion fish > ~/.config/fish/completions/berth.fish", NULL},
    .run = run,
};
