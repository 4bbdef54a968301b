/* From argv to an exit status: find the command, parse, run, show how it ended. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

int cli_main(int argc, char **argv);

#endif
