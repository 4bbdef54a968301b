/* `berth-engine data`: what `berth data` has done by a child. */
#ifndef ENGINE_DATA_MAIN_H
#define ENGINE_DATA_MAIN_H

/* tokenize, inspect or convert. Writes JSON lines to standard output: {"event": "progress"} now and
 * then, {"event": "result"} last. The exit code says how it ended, the last line on standard error
 * why. */
int data_main(int argc, char **argv);

#endif
