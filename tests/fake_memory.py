"""A libcuda.so.1 whose cards have memory: what kernels do there is done by memory.cu itself.

Each card is a file in memory, mapped; the kernels of envcheck/guest/ptx/memory.cu are compiled for
this machine and run as one thread. Faults are planted by variables (`FAKE_...`), so that everything
but the PTX and the real driver is what runs on a card.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import envcheck

MEMORY = 48 << 20
"""Bytes of each card."""
_SOURCE = Path(envcheck.__file__).parent / "guest" / "ptx" / "memory.cu"
FAKE = (
    r"""
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>
#include <sys/mman.h>
#define __global__
#define __device__
struct uint4 { unsigned x, y, z, w; };
static const struct { unsigned x; } blockIdx = {0}, threadIdx = {0}, gridDim = {1}, blockDim = {1};
static unsigned long long atomicAdd(unsigned long long *at, unsigned long long value)
{ unsigned long long old = *at; *at += value; return old; }
static unsigned long long atomicOr(unsigned long long *at, unsigned long long value)
{ unsigned long long old = *at; *at |= value; return old; }
#include "memory.cu"

enum { CARDS = 4, BLOCKS = 64, PAGE = 4096 };
static const size_t MEMORY = """
    + str(MEMORY)
    + r""";
typedef unsigned char byte;
static struct Card { byte *base; size_t at[BLOCKS], size[BLOCKS]; int blocks, reaches[CARDS]; }
    cards[CARDS];
static int current, sticky, verified;
static long number(const char *name, long without)
{ const char *text = getenv(name); return text ? atol(text) : without; }
static int is(const char *name, const char *value)
{ const char *text = getenv(name); return text && !strcmp(text, value); }
static int card_of(void *context) { return (Card *)context - cards; }

static void start(Card *card)
{
    if (card->base) return;
    int file = memfd_create("card", 0);
    if (ftruncate(file, MEMORY)) abort();
    card->base = (byte *)mmap(0, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const char *alias = getenv("FAKE_ALIAS");  // `page:page`: the second is the first
    if (alias) {
        long one = atol(alias), other = atol(strchr(alias, ':') + 1);
        mmap(card->base + other * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
             one * PAGE);
    }
}
/* Seconds that the card's own clock has gone on by what it copied, where a rate is told. */
static double clocked;
static void copied(const char *rate, size_t size)
{ if (getenv(rate)) clocked += size / (number(rate, 1) * 1e9); }
static int settle(void)  // after all that writes: bits that are stuck
{
    const char *stuck = getenv("FAKE_STUCK");  // `byte:bit`
    for (int i = 0; stuck && i < CARDS; i++)
        if (cards[i].base) cards[i].base[atol(stuck)] |= 1 << atol(strchr(stuck, ':') + 1);
    return sticky;
}

extern "C" {
int cuInit(unsigned flags) { return number("FAKE_INIT", 0); }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorName(int code, const char **name)
{
    *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE"
          : code == 221 ? "CUDA_ERROR_JIT_COMPILER_NOT_FOUND" : 0;
    return *name ? 0 : 1;
}
int cuDeviceGetCount(int *count) { *count = number("FAKE_COUNT", 1); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    const char *text = getenv("FAKE_NAME");
    strncpy(name, text ? text : "Fake 90", size);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{ *bytes = number("FAKE_TOTAL", MEMORY); return 0; }
int cuDeviceGetUuid_v2(unsigned char *raw, int device)
{ for (int i = 0; i < 16; i++) raw[i] = i + device + number("FAKE_FIRST", 0); return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int device)
{ strncpy(text, "00000000:C1:00.0", size); return 0; }
int cuDeviceGetAttribute(int *value, int which, int device)
{
    long sm = number("FAKE_SM", 90);
    *value = which == 75 ? sm / 10 : which == 76 ? sm % 10 : which == 16 ? 132
        : which == 97 ? 232448 : which == 18 ? getenv("FAKE_INTEGRATED") != 0 : -1;
    return *value < 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (is("FAKE_HANG", "start")) for (;;) pause();
    start(&cards[device]);
    *context = &cards[device];
    return 0;
}
int cuCtxSetCurrent(void *context) { current = card_of(context); return 0; }
int cuCtxSynchronize(void)
{
    if (number("FAKE_ECC", 0) && verified >= number("FAKE_ECC", 0)) sticky = 214;
    return sticky;
}
int cuModuleLoadData(void **module, const char *image)
{
    if (!strstr(image, ".entry verify(")) return 218;
    return number("FAKE_LOAD", 0);
}
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = !strcmp(name, "nothing") ? (void *)nothing : !strcmp(name, "fill") ? (void *)fill
              : !strcmp(name, "verify") ? (void *)verify : !strcmp(name, "copy") ? (void *)copy : 0;
    return *function ? 0 : 500;
}
int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    size_t taken = 0;
    for (int i = 0; i < cards[current].blocks; i++) taken += cards[current].size[i];
    *total = MEMORY;
    *left = number("FAKE_FREE", MEMORY - taken);
    return sticky;
}
int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    Card *card = &cards[current];
    if (size > number("FAKE_LARGEST", MEMORY) || card->blocks == BLOCKS) return 2;
    size = (size + 511) & ~(size_t)511;
    size_t at = 0;
    for (int again = 1; again;) {
        again = 0;
        for (int i = 0; i < card->blocks; i++)
            if (at < card->at[i] + card->size[i] && card->at[i] < at + size)
                at = card->at[i] + card->size[i], again = 1;
    }
    if (at + size > MEMORY) return 2;
    card->at[card->blocks] = at;
    card->size[card->blocks++] = size;
    *address = (unsigned long long)(card->base + at);
    return 0;
}
int cuMemFree_v2(unsigned long long address)
{
    Card *card = &cards[current];
    for (int i = 0; i < card->blocks; i++)
        if (card->base + card->at[i] == (byte *)address) {
            card->at[i] = card->at[--card->blocks];
            card->size[i] = card->size[card->blocks];
            return 0;
        }
    return 1;
}
int cuMemHostAlloc(void **address, size_t size, unsigned flags)
{ *address = malloc(size); return number("FAKE_PINNED", 0); }
int cuMemFreeHost(void *address) { free(address); return 0; }
int cuMemsetD8_v2(void *memory, unsigned char value, size_t size)
{ memset(memory, value, size); return settle(); }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
    copied("FAKE_LINK_RATE", size);
    if (is("FAKE_LINK", "to card")) ((byte *)to)[size / 2] ^= 4;
    usleep(number("FAKE_SLOW", 0));
    return settle();
}
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
    copied("FAKE_LINK_RATE", size);
    if (is("FAKE_LINK", "to host") && size > 1 << 20) ((byte *)to)[size / 2] ^= 4;
    if (is("FAKE_LINK", "nothing") && size > 1 << 20) memset(to, 0x5A, size);
    usleep(number("FAKE_SLOW", 0));
    return settle();
}
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *stream)
{ return cuMemcpyHtoD_v2(to, from, size); }
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t size, void *stream)
{ return cuMemcpyDtoH_v2(to, from, size); }
int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t size, void *stream)
{
    memcpy(to, from, size);
    copied("FAKE_RATE", 2 * size);
    usleep(number("FAKE_SLOW", 0));
    return settle();
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **given, void **extra)
{
    if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || shared) return 1;
    if (f == (void *)fill)
        fill(*(u64 **)given[0], *(u64 *)given[1], *(u64 *)given[2], *(unsigned *)given[3],
             *(u64 *)given[4], *(u64 *)given[5]);
    if (f == (void *)verify) {
        if (is("FAKE_HANG", "verify")) for (;;) pause();
        if (is("FAKE_CRASH", "verify")) abort();
        verify(*(u64 **)given[0], *(u64 *)given[1], *(u64 *)given[2], *(unsigned *)given[3],
               *(u64 *)given[4], *(u64 *)given[5], *(Report **)given[6]);
        verified++;
    }
    if (f == (void *)copy) {
        byte *to = *(byte **)given[0];
        for (int i = 0; i < CARDS; i++)
            if (i != current && cards[i].base && to >= cards[i].base
                && to < cards[i].base + MEMORY) {
                if (!cards[current].reaches[i]) return sticky = 700;
                if (is("FAKE_KERNEL", "hang")) for (;;) pause();
                if (is("FAKE_KERNEL", "stale")) return 0;
            }
        copy(*(uint4 **)given[0], *(uint4 **)given[1], *(u64 *)given[2]);
        copied("FAKE_RATE", 32 * *(u64 *)given[2]);
    }
    return settle();
}
struct Event { struct timespec at; double clocked; };
int cuEventCreate(Event **event, unsigned flags) { *event = new Event; return 0; }
int cuEventRecord(Event *event, void *stream)
{ event->clocked = clocked; return clock_gettime(CLOCK_MONOTONIC, &event->at); }
int cuEventSynchronize(Event *event) { return sticky; }
int cuEventElapsedTime(float *milliseconds, Event *first, Event *last)
{
    *milliseconds = (last->at.tv_sec - first->at.tv_sec) * 1e3
                  + (last->at.tv_nsec - first->at.tv_nsec) / 1e6;
    if (last->clocked > first->clocked) *milliseconds = (last->clocked - first->clocked) * 1e3;
    return 0;
}
int cuDeviceCanAccessPeer(int *can, int device, int peer)
{ *can = number("FAKE_PEERS", 1); return 0; }
int cuCtxEnablePeerAccess(void *peer, unsigned flags)
{ cards[current].reaches[card_of(peer)] = 1; return number("FAKE_ENABLE", 0); }
int cuMemcpyPeerAsync(byte *to, void *to_card, byte *from, void *from_card, size_t size,
                      void *stream)
{
    int one = card_of(from_card), other = card_of(to_card);
    if (to < cards[other].base || to + size > cards[other].base + MEMORY) return 1;
    if (from < cards[one].base || from + size > cards[one].base + MEMORY) return 1;
    int direct = cards[one].reaches[other];
    const char *fault = direct ? "FAKE_DIRECT" : "FAKE_STAGED";
    if (getenv("FAKE_ONE_WAY") && one > other) fault = "FAKE_NO_FAULT";
    if (is(fault, "hang")) for (;;) pause();
    if (is(fault, "error")) return sticky = 214;
    if (is(fault, "stale")) return 0;
    memcpy(to, from, size);
    if (is(fault, "zeros")) memset(to, 0, size);
    if (is(fault, "tail")) memset(to + size - 4096, 0, 4096);
    if (is(fault, "bit")) to[size / 3] ^= 1;
    if (is(fault, "odd") && size % 16) to[size / 3] ^= 1;
    if (is(fault, "beyond") && size % 16) to[size] = 0;
    return settle();
}
}
"""
)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a libcuda.so.1 whose cards have memory."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler to build a driver with")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cc").write_text(FAKE)
    options = ["-w", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{_SOURCE.parent}"]
    made = folder / "libcuda.so.1"
    subprocess.run([compiler, *options, "driver.cc", "-o", made], cwd=folder, check=True)
    return os.fspath(made)


def plant(monkeypatch: pytest.MonkeyPatch, **faults: str | int) -> None:
    """Plant faults in the cards of the next calls."""
    for name, value in faults.items():
        monkeypatch.setenv(f"FAKE_{name.upper()}", str(value))
