#include "engine/tokenizer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char TEXT[] =
    "It's  the caf\xc3\xa9,\r\n\n 1234 \xf0\x9f\x99\x82 <|endoftext|>\xff\xe4\xb8 and "
    "e\xcc\x81; a_very_long_word_without_any_space_in_it_at_all";

/* A tokenizer that was accepted encodes any text, into ids of its own that decode. */
static void use(const struct tokenizer *t)
{
    struct err e = ERR_INIT;
    struct id_list ids = {0};
    struct str back = STR_INIT;
    struct tokenizer_work *w = tokenizer_work_new(t);
    if (tokenizer_encode(w, TEXT, sizeof(TEXT) - 1, &ids, &e) && !e.msg[0])
        abort();
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.v[i] >= tokenizer_vocab(t))
            abort();
        tokenizer_decode(t, ids.v[i], &back);
    }
    if (tokenizer_cut(t, TEXT, sizeof(TEXT) - 1, 0) > sizeof(TEXT) - 1)
        abort();
    tokenizer_end_of_text(t);
    tokenizer_work_free(w);
    str_release(&back);
    free(ids.v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    struct json *v = NULL;
    struct tokenizer *t;
    if (json_parse(&v, (const char *)data, len, &e))
        return 0;
    if (tokenizer_from_json(&t, v, &e) == RC_OK) {
        use(t);
        tokenizer_close(t);
    } else if (!e.msg[0]) {
        abort();
    }
    json_free(v);
    return 0;
}
