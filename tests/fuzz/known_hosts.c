#include "launcher/known_hosts.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "launcher/ssh_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Files the user keeps for ssh, and what `ssh -G` prints. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct known_hosts *k = known_hosts_new();
    char types[KNOWN_TYPES_TEXT], print[KNOWN_FINGERPRINT_TEXT];
    const char *where = NULL;
    known_hosts_add(k, "fuzz", (const char *)data, len);
    enum known_answer a = known_hosts_check(k, "127.0.0.1", 2222, data, len, &where);
    if ((a == KNOWN_CHANGED || a == KNOWN_REVOKED) != (where != NULL))
        abort();
    known_hosts_types(k, "127.0.0.1", 2222, types);
    known_hosts_fingerprint(data, len, print);
    free(known_hosts_line("h", 22, data, len));
    known_hosts_free(k);

    char *text = malloc(len + 1);
    for (size_t i = 0; i < len; i++)
        text[i] = data[i] ? (char)data[i] : ' ';
    text[len] = '\0';
    struct ssh_settings s;
    ssh_settings_parse(&s, text);
    ssh_settings_release(&s);
    free(text);
    return 0;
}
