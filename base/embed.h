/* Files built into the program: the Makefile turns each FOLDER/facts/NAME.EXT into an array. */
#ifndef BASE_EMBED_H
#define BASE_EMBED_H

#include <stddef.h>

/* Declare the embedded file facts/NAME.EXT as NAME_EXT (dots and dashes become '_'). */
#define EMBED(symbol)                                                                              \
    extern const unsigned char embed_##symbol[];                                                   \
    extern const size_t embed_##symbol##_len

#endif
