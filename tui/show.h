/* Numbers as the screens show them: with their unit, "?" when unknown. Each returns buf. */
#ifndef TUI_SHOW_H
#define TUI_SHOW_H

#include <stddef.h>
#include <stdint.h>

enum { SHOW_TEXT = 40 };

char *show_bytes(char buf[SHOW_TEXT], double bytes);
/* "$1,043" from a hundred dollars up, "$3.29" below; rounded up. */
char *show_usd(char buf[SHOW_TEXT], double usd);
/* "1.42 s", "31 min", "4.5 h", "3.2 d". */
char *show_seconds(char buf[SHOW_TEXT], double seconds);
/* Of something that goes on: "0.4 s", "31 s", "4 min". */
char *show_elapsed(char buf[SHOW_TEXT], double seconds);
/* "97 %" from 0.97. */
char *show_percent(char buf[SHOW_TEXT], double part);
/* "9,812", "3.41"; at least three digits. */
char *show_number(char buf[SHOW_TEXT], double x);
/* "8.03B", "512k". */
char *show_count(char buf[SHOW_TEXT], double x);
/* Age of data: "now", "40 s old", "12 min old", "3 d old". */
char *show_age(char buf[SHOW_TEXT], double seconds);

#endif
