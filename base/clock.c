#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

double clock_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *clock_rfc3339(char buf[CLOCK_TEXT], double wall_s)
{
    time_t t = (time_t)floor(wall_s);
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(buf, CLOCK_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return buf;
}

double clock_parse_rfc3339(const char *text)
{
    struct tm tm = {0};
    int year, month;
    if (sscanf(text, "%4d-%2d-%2d%*1[Tt ]%2d:%2d:%2d", &year, &month, &tm.tm_mday, &tm.tm_hour,
            &tm.tm_min, &tm.tm_sec) != 6)
        return -1;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    return (double)timegm(&tm);
}

void clock_sleep_s(double seconds)
{
    if (!(seconds > 0))
        return;
    struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&t, NULL);
}
