/* Subcommands of berth-engine for running a node. Each returns the exit status of the program. */
#ifndef ENGINE_AGENT_MAIN_H
#define ENGINE_AGENT_MAIN_H

/* `berth-engine agent --dir DIR`: start the agent of a run folder that holds spec.json, print its
 * hello (one JSON line with pid and coordinator_port) and leave it running in the background. */
int agent_main(int argc, char **argv);

/* `berth-engine agentctl --dir DIR`: speak agent/1 on standard input and output about the run in
 * DIR, with its agent or, when that is dead, from what it left behind. */
int agentctl_main(int argc, char **argv);

/* `berth-engine reach NONCE`: whether the nodes can reach each other (engine/agent_reach.c). */
int reach_main(int argc, char **argv);

#endif
