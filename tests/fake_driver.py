"""A libcuda.so.1 of our own, which answers as variables tell it: for what no machine here does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FAKE = r"""
#include <stdlib.h>
#include <string.h>
static int number(const char *name, int without)
{ const char *text = getenv(name); return text ? atoi(text) : without; }
int cuInit(unsigned flags)
{ if (getenv("FAKE_CRASH")) abort(); return number("FAKE_INIT", 0); }
int cuDriverGetVersion(int *version) { *version = number("FAKE_VERSION", 13000); return 0; }
int cuGetErrorName(int code, const char **name)
{
    *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : 0;
    return *name ? 0 : 1;
}
int cuDeviceGetCount(int *count) { *count = number("FAKE_COUNT", 1); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Fake 90", size); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)5 << 32; return 0; }
int cuDeviceGetUuid_v2(unsigned char *raw, int device)
{ for (int i = 0; i < 16; i++) raw[i] = i + device; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device)
{
    *value = which == 75 ? 9 : which == 76 ? 0 : which == 16 ? 132 : which == 97 ? 232448 : -1;
    return *value < 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = context; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuModuleLoadData(void **module, const char *image)
{
    if (getenv("FAKE_HANG")) for (;;) ;
    return number("FAKE_LOAD", 0);
}
int cuModuleGetFunction(void **function, void *module, const char *name)
{ *function = function; return strcmp(name, "probe") ? 500 : 0; }
int cuMemAlloc_v2(void **memory, size_t size) { *memory = malloc(size); return 0; }
int cuMemsetD8_v2(void *memory, unsigned char byte, size_t size)
{ memset(memory, byte, size); return 0; }
int cuFuncSetAttribute(void *function, int which, int value)
{ return which == 8 && value > 232448; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **parameters, void **extra)
{
    int *out = *(int **)parameters[0], n = *(int *)parameters[1];
    for (int i = 0; i < n; i++) out[i] = i * 3 + number("FAKE_ADD", 1);
    return 0;
}
int cuCtxSynchronize(void) { return 0; }
int cuMemcpyDtoH_v2(void *host, void *memory, size_t size) { memcpy(host, memory, size); return 0; }
"""


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a libcuda.so.1 that answers as it is told."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a driver with")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(FAKE)
    words = [compiler, "-w", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1"]
    subprocess.run(words, cwd=folder, check=True)
    return folder


def words(fake: Path, **told: str | int) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(fake), **{f"FAKE_{k.upper()}": str(v) for k, v in told.items()}}
