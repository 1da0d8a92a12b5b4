"""A libnvidia-ml.so.1 of our own, which answers as variables tell it: for what no machine here has.

Without a variable it answers as an H200 under driver 580.159.04 did. `nvmlDeviceGetName=X` in the
environment is another answer; `nvmlDeviceGetName_1` is that of the second card alone. `!15` is
NVML's error 15, `a;b` is a at the first call and b from then on, `a,b` are two values of one call.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FAKE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long u64;
static struct { char name[96]; int calls; } counts[256];
/* What is told of a function: by its name and the card's, or by its name; its nth part. */
static const char *told(const char *name, void *card)
{
    static char part[4096];
    char own[96];
    snprintf(own, sizeof own, "%s_%d", name, (int)(long)card - 1);
    const char *text = getenv(own);
    if (!text) text = getenv(name);
    if (!text) return 0;
    int n = 0;
    while (n < 255 && counts[n].name[0] && strcmp(counts[n].name, own)) n++;
    strcpy(counts[n].name, own);
    int skip = counts[n].calls++;
    for (const char *next; skip-- && (next = strchr(text, ';')); ) text = next + 1;
    snprintf(part, sizeof part, "%s", text);
    if (strchr(part, ';')) *strchr(part, ';') = 0;
    if (!strcmp(part, "hang")) for (;;) sleep(1);
    if (!strcmp(part, "crash")) abort();
    return part;
}
static u64 value(const char *text, int n, u64 without)
{
    while (text && n--) { text = strchr(text, ','); if (text) text++; }
    return text && *text ? strtoull(text, 0, 0) : without;
}
#define ASK(function, card) const char *text = told(#function, card); \
    if (text && *text == '!') return atoi(text + 1);
#define NUMBER(function, type, without) int function(void *card, type *to) \
    { ASK(function, card) *to = value(text, 0, without); return 0; }
#define OF_KIND(function, first, second) int function(void *card, int kind, unsigned *to) \
    { ASK(function, card) *to = value(text, kind, kind ? second : first); return 0; }
#define PAIR(function, a, b) int function(void *card, unsigned *x, unsigned *y) \
    { ASK(function, card) *x = value(text, 0, a); *y = value(text, 1, b); return 0; }
#define TEXT(function, without) int function(void *card, char *to, unsigned size) \
    { ASK(function, card) snprintf(to, size, "%s", text ? text : without); return 0; }
#define SYSTEM(function, without) int function(char *to, unsigned size) \
    { ASK(function, 0) snprintf(to, size, "%s", text ? text : without); return 0; }
#define UNSUPPORTED(function, type) int function(void *card, type *to) \
    { ASK(function, card) *to = value(text, 0, 0); return text ? 0 : 3; }

int nvmlInitWithFlags(unsigned flags) { ASK(nvmlInitWithFlags, 0) return 0; }
const char *nvmlErrorString(int code) { return "told by the library"; }
SYSTEM(nvmlSystemGetDriverVersion, "580.159.04")
SYSTEM(nvmlSystemGetNVMLVersion, "13.580.159.04")
int nvmlDeviceGetCount_v2(unsigned *to)
{ ASK(nvmlDeviceGetCount_v2, 0) *to = value(text, 0, 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card)
{
    *card = (void *)(long)(index + 1);
    ASK(nvmlDeviceGetHandleByIndex_v2, *card)
    return 0;
}
TEXT(nvmlDeviceGetName, "NVIDIA H200")
TEXT(nvmlDeviceGetUUID, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
TEXT(nvmlDeviceGetSerial, "1600000000001")
TEXT(nvmlDeviceGetVbiosVersion, "96.00.A5.00.1A")
int nvmlDeviceGetPciInfo_v3(void *card, char *to)
{
    ASK(nvmlDeviceGetPciInfo_v3, card)
    memset(to, 0, 68);
    snprintf(to + 36, 32, "%s", text ? text : "00000000:ff:1f.7");
    return 0;
}
PAIR(nvmlDeviceGetCudaComputeCapability, 9, 0)
int nvmlDeviceGetMemoryInfo(void *card, u64 *to)
{
    ASK(nvmlDeviceGetMemoryInfo, card)
    to[0] = value(text, 0, 150754820096), to[1] = value(text, 1, 150109880320);
    to[2] = value(text, 2, 644939776);
    return 0;
}
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 700000)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, 200000, 700000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, 81734)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, 1)
NUMBER(nvmlDeviceGetComputeMode, unsigned, 0)
PAIR(nvmlDeviceGetEccMode, 1, 1)
PAIR(nvmlDeviceGetMigMode, 0, 0)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, 7)
int nvmlDeviceGetMigDeviceHandleByIndex(void *card, unsigned index, void **part)
{
    ASK(nvmlDeviceGetMigDeviceHandleByIndex, card)
    *part = (void *)(long)(index + 101);
    return index < value(text, 0, 0) ? 0 : 6;
}
UNSUPPORTED(nvmlDeviceGetRetiredPagesPendingStatus, unsigned)
int nvmlDeviceGetRetiredPages(void *card, int cause, unsigned *count, u64 *pages)
{
    ASK(nvmlDeviceGetRetiredPages, card)
    *count = value(text, 0, 0);
    return text ? 0 : 3;
}
int nvmlDeviceGetTotalEccErrors(void *card, int kind, int counter, u64 *to)
{
    ASK(nvmlDeviceGetTotalEccErrors, card)
    *to = value(text, 2 * kind + counter, 0);
    return 0;
}
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, 1)
int nvmlDeviceGetComputeRunningProcesses_v2(void *card, unsigned *count, void *to)
{
    ASK(nvmlDeviceGetComputeRunningProcesses_v2, card)
    int n = 0;
    for (const char *c = text; c && *c; c++) n += *c == '/';
    if (!to) { *count = n; return n ? 7 : 0; }
    *count = n;
    struct { unsigned pid; u64 memory; unsigned gi, ci; } *all = to;
    for (int i = 0; i < n; i++, text = strchr(text, ',') + 1) {
        all[i].pid = atoi(text), all[i].memory = strtoull(strchr(text, '/') + 1, 0, 0);
        if (!strchr(text, ',')) break;
    }
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *card, unsigned *count, void *to)
{ ASK(nvmlDeviceGetGraphicsRunningProcesses_v2, card) *count = 0; return 0; }
int nvmlDeviceGetUtilizationRates(void *card, unsigned *to)
{ ASK(nvmlDeviceGetUtilizationRates, card) to[0] = value(text, 0, 0), to[1] = 0; return 0; }
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, 1)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, 0)
int nvmlDeviceGetClockInfo(void *card, int kind, unsigned *to)
{ ASK(nvmlDeviceGetClockInfo, card) *to = value(text, kind - 1, kind == 1 ? 345 : 3201); return 0; }
int nvmlDeviceGetMaxClockInfo(void *card, int kind, unsigned *to)
{ ASK(nvmlDeviceGetMaxClockInfo, card) *to = value(text, kind - 1, kind == 1 ? 1980 : 3201); return 0; }
OF_KIND(nvmlDeviceGetTemperature, 38, 38)
OF_KIND(nvmlDeviceGetTemperatureThreshold, 95, 89)
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *card, void *to)
{
    ASK(nvmlDeviceGetMemoryInfo_v2, card)
    struct { unsigned version; u64 total, reserved, free, used; } *memory = to;
    if (memory->version != 33554472) return 25;
    memory->total = value(text, 0, 150754820096), memory->reserved = value(text, 1, 644939776);
    memory->free = value(text, 2, 150109880320), memory->used = value(text, 3, 0);
    return 0;
}
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, 5)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, 1)
int nvmlDeviceGetGspFirmwareVersion(void *card, char *to)
{ ASK(nvmlDeviceGetGspFirmwareVersion, card) strcpy(to, text ? text : "580.159.04"); return 0; }
int nvmlDeviceGetRemappedRows(void *card, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
    ASK(nvmlDeviceGetRemappedRows, card)
    *a = value(text, 0, 0), *b = value(text, 1, 0), *c = value(text, 2, 0), *d = value(text, 3, 0);
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned *count, void *to)
{ return nvmlDeviceGetComputeRunningProcesses_v2(card, count, to); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *card, unsigned *count, void *to)
{ return nvmlDeviceGetGraphicsRunningProcesses_v2(card, count, to); }
#endif
"""


def _built(folder: Path, *options: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a library with")
    (folder / "nvml.c").write_text(FAKE)
    words = [compiler, "-w", "-shared", "-fPIC", *options, "nvml.c", "-o", "libnvidia-ml.so.1"]
    subprocess.run(words, cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a libnvidia-ml.so.1 that answers as it is told."""
    return _built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without the functions that drivers before 510 lack."""
    return _built(tmp_path_factory.mktemp("old-nvml"), "-DOLD")
