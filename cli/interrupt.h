/* Ctrl-C and SIGTERM for commands that look after runs: the first makes a descriptor readable, the
 * second ends the program at once. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

/* Install the handlers (once). Returns the descriptor to poll; it stays readable from then on. */
int interrupt_watch(void);

#endif
