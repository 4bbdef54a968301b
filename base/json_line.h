/* One JSON object as a line of text in a buffer of the caller's, for places that must not
 * allocate. Numbers look as json_print writes them. */
#ifndef BASE_JSON_LINE_H
#define BASE_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_line {
    char *text; /* the caller's */
    size_t cap, len;
    bool is_full; /* something did not fit: the text is not JSON */
};

/* Keeps text until json_line_end. */
void json_line_begin(struct json_line *l, char *text, size_t cap);
/* Close the object and the line. Returns its bytes with the '\n' (a '\0' follows), 0 when it did
 * not fit. */
size_t json_line_end(struct json_line *l);

/* Members up to json_line_close belong to an object under key. */
void json_line_open(struct json_line *l, const char *key);
void json_line_close(struct json_line *l);
/* Keys and words go out as they are: letters, digits and '_' of our own, nothing foreign. */
void json_line_word(struct json_line *l, const char *key, const char *word);
/* A number that is not finite becomes null. */
void json_line_num(struct json_line *l, const char *key, double x);
void json_line_int(struct json_line *l, const char *key, int64_t x);
void json_line_bool(struct json_line *l, const char *key, bool x);
void json_line_null(struct json_line *l, const char *key);

#endif
