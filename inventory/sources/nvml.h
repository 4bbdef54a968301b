/* The NVIDIA GPUs of this machine, asked through NVML, which is opened at run time: Berth runs the
 * same where there is no driver. */
#ifndef INVENTORY_SOURCES_NVML_H
#define INVENTORY_SOURCES_NVML_H

#include <stdbool.h>
#include <stdint.h>

struct nvml_report {
    int64_t count;
    char name[96];        /* of the first GPU */
    int64_t memory_bytes; /* the smallest of all */
    char driver[80];
    bool is_mixed; /* not all have the same name */
};

/* False when there is no driver, no library or no GPU. Never blocks for long. */
bool nvml_look(struct nvml_report *out);

#endif
