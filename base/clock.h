/* Time. Not for planner/, which is pure: check-includes refuses it there. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

enum { CLOCK_TEXT = 32 };

/* Monotonic seconds. */
double clock_now_s(void);
/* Seconds since 1970, UTC. */
double clock_wall_s(void);
/* "2026-11-30T08:30:00Z". */
char *clock_rfc3339(char buf[CLOCK_TEXT], double wall_s);
/* Seconds since 1970 of an RFC 3339 text, -1 when it is not one. */
double clock_parse_rfc3339(const char *text);
void clock_sleep_s(double seconds);

#endif
