/* Functions that overflow, keep hidden state or depend on the locale. Included by the Makefile into
 * every C file of ours (-include), after the system headers would be too late otherwise. */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets strtok asctime ctime
#pragma GCC poison localtime gmtime atoi atol atoll atof tmpnam mktemp

#endif
