/* The NVIDIA driver's library for tests: what each call answers stands in a file, which is read again when it changes.
 *
 * FAKE_NVML_SCENARIO names the file.  One line a thing, `key=value`:
 *   driver init=CODE all=CODE nobody=CODE delay_ms=N
 *          what nvmlInit answers, what every call answers, what "nobody has worked" is (0 or 6), how long each call takes
 *   gpu    uuid= name= minor= mig=0|1 util= watts= energy= mem= gpm=
 *          without gpm= it has none; energy in millijoules; without it the watts are integrated over the clock; name has _ for a space
 *   mig    uuid= parent= gi= mem= gpm=
 *   proc   device= pid= sm= mps=0|1
 *          sm=-1 has not worked
 *   fail   call= device=UUID|* code=
 * A handle keeps its meaning when the file changes; a device that is in it no more is lost (15).
 * OLD_DRIVER leaves out the symbols that a driver of 2021 lacks.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { MOST = 256 };
typedef unsigned long long u64;
typedef unsigned int u32;

struct device { char uuid[96], name[96], parent[96]; int minor, mig, util, gi, has_gpm; double watts, gpm; long long energy, mem; };
struct proc { char device[96]; int pid, sm, mps; };
struct fail { char call[96], device[96]; int code; };
struct handle { char uuid[96]; double energy_mj; struct timespec since; };
struct sample { double percent; };

static struct device devices[MOST];
static struct proc procs[MOST * 32];
static struct fail fails[MOST * 16];
static struct handle handles[MOST];
static int device_count, proc_count, fail_count, handle_count;
static int driver_init, driver_all, driver_nobody = NOT_FOUND, driver_delay_ms, users;
static struct timespec read_at;
static off_t read_size;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *text(const char *line, const char *key, char *into, size_t size, const char *otherwise) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *at = strstr(line, wanted);
    snprintf(into, size, "%s", otherwise);
    if (at) {
        at += strlen(wanted);
        size_t length = strcspn(at, " \n");
        snprintf(into, size, "%.*s", (int)(length < size - 1 ? length : size - 1), at);
    }
    return into;
}

static double number(const char *line, const char *key, double otherwise) {
    char found[96];
    text(line, key, found, sizeof found, "");
    return found[0] ? strtod(found, NULL) : otherwise;
}

static void read_line(const char *line) {
    if (!strncmp(line, "driver ", 7)) {
        driver_init = (int)number(line, "init", 0);
        driver_all = (int)number(line, "all", 0);
        driver_nobody = (int)number(line, "nobody", NOT_FOUND);
        driver_delay_ms = (int)number(line, "delay_ms", 0);
    } else if ((!strncmp(line, "gpu ", 4) || !strncmp(line, "mig ", 4)) && device_count < MOST) {
        struct device *one = &devices[device_count++];
        text(line, "uuid", one->uuid, sizeof one->uuid, "");
        text(line, "name", one->name, sizeof one->name, "");
        text(line, "parent", one->parent, sizeof one->parent, "");
        for (char *c = one->name; *c; c++) if (*c == '_') *c = ' ';
        one->minor = (int)number(line, "minor", 0);
        one->mig = (int)number(line, "mig", 0);
        one->util = (int)number(line, "util", 0);
        one->gi = (int)number(line, "gi", 0);
        one->watts = number(line, "watts", 0);
        one->gpm = number(line, "gpm", 0);
        one->has_gpm = strstr(line, " gpm=") != NULL;
        one->energy = (long long)number(line, "energy", -1);
        one->mem = (long long)number(line, "mem", 0);
    } else if (!strncmp(line, "proc ", 5) && proc_count < MOST * 32) {
        struct proc *one = &procs[proc_count++];
        text(line, "device", one->device, sizeof one->device, "");
        one->pid = (int)number(line, "pid", 0);
        one->sm = (int)number(line, "sm", -1);
        one->mps = (int)number(line, "mps", 0);
    } else if (!strncmp(line, "fail ", 5) && fail_count < MOST * 16) {
        struct fail *one = &fails[fail_count++];
        text(line, "call", one->call, sizeof one->call, "");
        text(line, "device", one->device, sizeof one->device, "*");
        one->code = (int)number(line, "code", 999);
    }
}

static void read_scenario(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO");
    struct stat now;
    if (!path || stat(path, &now)) { driver_all = 9; return; }
    if (!memcmp(&now.st_mtim, &read_at, sizeof read_at) && now.st_size == read_size) return;
    FILE *file = fopen(path, "r");
    char line[1024];
    if (!file) { driver_all = 9; return; }
    device_count = proc_count = fail_count = driver_init = driver_all = driver_delay_ms = 0;
    driver_nobody = NOT_FOUND;
    while (fgets(line, sizeof line, file)) read_line(line);
    fclose(file);
    read_at = now.st_mtim;
    read_size = now.st_size;
}

static struct device *find(const char *uuid) {
    for (int i = 0; i < device_count; i++) if (!strcmp(devices[i].uuid, uuid)) return &devices[i];
    return NULL;
}

static struct handle *intern(const char *uuid) {
    for (int i = 0; i < handle_count; i++) if (!strcmp(handles[i].uuid, uuid)) return &handles[i];
    if (handle_count == MOST) return NULL;
    struct handle *one = &handles[handle_count++];
    snprintf(one->uuid, sizeof one->uuid, "%s", uuid);
    one->energy_mj = 1e9;
    clock_gettime(CLOCK_MONOTONIC, &one->since);
    return one;
}

/* The code that the call answers by the scenario, with the lock held afterwards; *one is the device it asks about. */
static int enter(const char *call, void *handle, struct device **one) {
    pthread_mutex_lock(&lock);
    read_scenario();
    if (driver_delay_ms) {
        int delay_ms = driver_delay_ms;
        pthread_mutex_unlock(&lock);
        usleep(1000u * (u32)delay_ms);
        pthread_mutex_lock(&lock);
    }
    if (driver_all) return driver_all;
    if (!users) return UNINITIALIZED;
    const char *uuid = handle ? ((struct handle *)handle)->uuid : "";
    for (int i = 0; i < fail_count; i++)
        if (!strcmp(fails[i].call, call) && (!strcmp(fails[i].device, "*") || !strcmp(fails[i].device, uuid))) return fails[i].code;
    if (one && !(*one = find(uuid))) return LOST;
    return SUCCESS;
}

static int leave(int code) { pthread_mutex_unlock(&lock); return code; }

#define BEGIN(handle) struct device *one = NULL; int code = enter(__func__, handle, &one); if (code) return leave(code)
#define BEGIN_DRIVER int code = enter(__func__, NULL, NULL); if (code) return leave(code)

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    read_scenario();
    int code = driver_init ? driver_init : driver_all;
    if (!code) users++;
    return leave(code);
}

int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int code = users ? SUCCESS : UNINITIALIZED;
    if (users) users--;
    return leave(code);
}

const char *nvmlErrorString(int code) { (void)code; return "an error of the scenario"; }

int nvmlDeviceGetCount_v2(u32 *count) {
    BEGIN_DRIVER;
    *count = 0;
    for (int i = 0; i < device_count; i++) if (!devices[i].parent[0]) ++*count;
    return leave(SUCCESS);
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, void **handle) {
    BEGIN_DRIVER;
    for (int i = 0; i < device_count; i++)
        if (!devices[i].parent[0] && !index--) {
            for (int f = 0; f < fail_count; f++)
                if (!strcmp(fails[f].call, "handle") && !strcmp(fails[f].device, devices[i].uuid)) return leave(fails[f].code);
            *handle = intern(devices[i].uuid);
            return leave(SUCCESS);
        }
    return leave(INVALID_ARGUMENT);
}

int nvmlDeviceGetUUID(void *handle, char *into, u32 size) { BEGIN(handle); snprintf(into, size, "%s", one->uuid); return leave(SUCCESS); }
int nvmlDeviceGetName(void *handle, char *into, u32 size) { BEGIN(handle); snprintf(into, size, "%s", one->name); return leave(SUCCESS); }
int nvmlDeviceGetMinorNumber(void *handle, u32 *minor) { BEGIN(handle); *minor = (u32)one->minor; return leave(SUCCESS); }
int nvmlDeviceGetMigMode(void *handle, u32 *now, u32 *next) { BEGIN(handle); *now = *next = (u32)one->mig; return leave(SUCCESS); }
int nvmlDeviceGetMaxMigDeviceCount(void *handle, u32 *count) { BEGIN(handle); *count = one->mig ? 7 : 0; return leave(SUCCESS); }
int nvmlDeviceGetGpuInstanceId(void *handle, u32 *gi) { BEGIN(handle); *gi = (u32)one->gi; return leave(SUCCESS); }

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, u32 index, void **mig) {
    BEGIN(handle);
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i].parent, one->uuid) && !index--) { *mig = intern(devices[i].uuid); return leave(SUCCESS); }
    return leave(NOT_FOUND);
}

int nvmlDeviceGetUtilizationRates(void *handle, u32 *rates) {
    BEGIN(handle);
    rates[0] = (u32)one->util;
    rates[1] = 0;
    return leave(SUCCESS);
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, u64 *energy_mj) {
    BEGIN(handle);
    struct handle *kept = handle;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    kept->energy_mj += one->watts * 1e3 * ((double)(now.tv_sec - kept->since.tv_sec) + 1e-9 * (double)(now.tv_nsec - kept->since.tv_nsec));
    kept->since = now;
    *energy_mj = one->energy >= 0 ? (u64)one->energy : (u64)kept->energy_mj;
    return leave(SUCCESS);
}

struct memory { u32 version; u64 total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory *memory) {
    BEGIN(handle);
    memory->total = 80ull << 30;
    memory->reserved = 600ull << 20;
    memory->used = (u64)one->mem;
    memory->free = memory->total - memory->reserved - memory->used;
    return leave(SUCCESS);
}

#ifndef OLD_DRIVER
struct process { u32 pid; u64 memory; u32 gpu_instance, compute_instance; };

static int list_processes(const char *uuid, int mps, u32 *count, struct process *into) {
    u32 found = 0, room = *count;
    for (int i = 0; i < proc_count; i++)
        if (!strcmp(procs[i].device, uuid) && procs[i].mps == mps) {
            if (into && found < room) into[found] = (struct process){(u32)procs[i].pid, 1u << 20, ~0u, ~0u};
            found++;
        }
    *count = found;
    return found > room || (found && !into) ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, u32 *count, struct process *into) {
    BEGIN(handle);
    return leave(list_processes(one->uuid, 0, count, into));
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, u32 *count, struct process *into) {
    BEGIN(handle);
    return leave(list_processes(one->uuid, 1, count, into));
}
#endif

struct utilisation { u32 pid; u64 at_us; u32 sm, mem, enc, dec; };

int nvmlDeviceGetProcessUtilization(void *handle, struct utilisation *into, u32 *count, u64 since_us) {
    BEGIN(handle);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    u64 now_us = (u64)now.tv_sec * 1000000u + (u64)now.tv_nsec / 1000u;
    u32 found = 0;
    for (int i = 0; i < proc_count && now_us > since_us; i++)
        if (!strcmp(procs[i].device, one->uuid) && procs[i].sm >= 0) {
            if (into && found < *count) into[found] = (struct utilisation){(u32)procs[i].pid, now_us, (u32)procs[i].sm, 0, 0, 0};
            found++;
        }
    if (!found) return leave(driver_nobody);
    u32 room = into ? *count : 0;
    *count = found;
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

#ifndef OLD_DRIVER
struct support { u32 version, is_supported; };
struct metric { u32 id; int code; double value; const char *names[3]; };
struct metrics { u32 version, count; struct sample *before, *newest; struct metric metrics[]; };

int nvmlGpmQueryDeviceSupport(void *handle, struct support *support) { BEGIN(handle); support->is_supported = (u32)one->has_gpm; return leave(SUCCESS); }
int nvmlGpmSampleAlloc(struct sample **sample) { BEGIN_DRIVER; *sample = calloc(1, sizeof **sample); return leave(SUCCESS); }
int nvmlGpmSampleFree(struct sample *sample) { BEGIN_DRIVER; free(sample); return leave(SUCCESS); }
int nvmlGpmSampleGet(void *handle, struct sample *sample) { BEGIN(handle); sample->percent = one->gpm; return leave(SUCCESS); }

int nvmlGpmMigSampleGet(void *handle, u32 gi, struct sample *sample) {
    BEGIN(handle);
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i].parent, one->uuid) && devices[i].gi == (int)gi) { sample->percent = devices[i].gpm; return leave(SUCCESS); }
    return leave(NOT_FOUND);
}

int nvmlGpmMetricsGet(struct metrics *asked) {
    BEGIN_DRIVER;
    for (u32 i = 0; i < asked->count; i++) {
        asked->metrics[i].code = SUCCESS;
        asked->metrics[i].value = asked->newest->percent;
    }
    return leave(SUCCESS);
}
#endif
