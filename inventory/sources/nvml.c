#include "inventory/sources/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* The part of NVML's binary interface that we use; fixed by NVIDIA since version 2 of each call. */
struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};
typedef void *nvml_device;

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned size);
    int (*device_count)(unsigned *count);
    int (*device_by_index)(unsigned index, nvml_device *device);
    int (*device_name)(nvml_device device, char *text, unsigned size);
    int (*device_memory)(nvml_device device, struct nvml_memory *memory);
};

static bool resolve(struct nvml *n, void *library)
{
    const struct {
        const char *name;
        void *slot;
    } SYMBOLS[] = {{"nvmlInit_v2", &n->init}, {"nvmlShutdown", &n->shutdown},
        {"nvmlSystemGetDriverVersion", &n->driver_version},
        {"nvmlDeviceGetCount_v2", &n->device_count},
        {"nvmlDeviceGetHandleByIndex_v2", &n->device_by_index},
        {"nvmlDeviceGetName", &n->device_name}, {"nvmlDeviceGetMemoryInfo", &n->device_memory}};
    for (size_t i = 0; i < sizeof(SYMBOLS) / sizeof(SYMBOLS[0]); i++) {
        void *address = dlsym(library, SYMBOLS[i].name);
        if (!address)
            return false;
        memcpy(SYMBOLS[i].slot, &address, sizeof(address)); /* object to function pointer */
    }
    return true;
}

static bool look_at(const struct nvml *n, unsigned index, struct nvml_report *r)
{
    nvml_device device;
    char name[sizeof(r->name)] = "";
    struct nvml_memory memory = {0, 0, 0};
    if (n->device_by_index(index, &device) || n->device_name(device, name, sizeof(name)) ||
        n->device_memory(device, &memory))
        return false;
    name[sizeof(name) - 1] = '\0';
    if (r->count == 0)
        memcpy(r->name, name, sizeof(name));
    r->is_mixed = r->is_mixed || strcmp(r->name, name) != 0;
    if (r->count == 0 || (int64_t)memory.total < r->memory_bytes)
        r->memory_bytes = (int64_t)memory.total;
    r->count++;
    return true;
}

bool nvml_look(struct nvml_report *out)
{
    memset(out, 0, sizeof(*out));
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    struct nvml n;
    unsigned count = 0;
    if (resolve(&n, library) && n.init() == 0) {
        if (n.driver_version(out->driver, sizeof(out->driver)) != 0)
            out->driver[0] = '\0';
        if (n.device_count(&count) == 0)
            for (unsigned i = 0; i < count && i < 64; i++)
                look_at(&n, i, out);
        n.shutdown();
    }
    dlclose(library);
    return out->count > 0;
}
