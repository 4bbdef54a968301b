/* berth-engine: the program on the nodes. Not for people; berth starts it. */
#include <stdio.h>
#include <string.h>

#include "engine/agent_main.h"
#include "engine/bench.h"
#include "engine/data_main.h"
#include "engine/export_weights.h"
#include "engine/rank.h"

static int version_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("berth-engine %s\n", BERTH_VERSION);
    return 0;
}

static const struct {
    const char *name;
    int (*main)(int argc, char **argv); /* argv[0] is the subcommand */
} COMMANDS[] = {
    {"agent", agent_main},
    {"agentctl", agentctl_main},
    {"bench", bench_main},
    {"data", data_main},
    {"export-weights", export_weights_main},
    {"rank", rank_main},
    {"reach", reach_main},
    {"version", version_main},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].main(argc - 1, argv + 1);
    fprintf(stderr, "berth-engine: '%s' is not a subcommand; berth runs this program on nodes\n",
        argc > 1 ? argv[1] : "");
    return 2;
}
