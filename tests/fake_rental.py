"""A rental of our own: a healthy RTX 4090, made of a libcuda.so.1 and a libnvidia-ml.so.1.

Both are found through LD_LIBRARY_PATH, so that the real command runs with all of its steps; what is
wrong with the machine is told by variables of tests/fake_memory.py and tests/fake_nvml.py.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from building import venv, wheel
from fake_memory import library
from guarding import CODE

__all__ = ["library"]

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
SECOND = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
"""Of the second card that tests/fake_memory.py has."""
MIB = 1 << 20
# What a GeForce says to NVML: no ECC to count with, no MIG, no rows to remap.
HEALTHY = {
    "FAKE_NAME": "NVIDIA GeForce RTX 4090",
    "FAKE_SM": "89",
    "FAKE_TOTAL": str(24080 * MIB),
    # GB/s: nine tenths of the maker's 1008, and what a x16 link of generation 4 really carries.
    "FAKE_RATE": "907",
    "FAKE_LINK_RATE": "26",
    "nvmlDeviceGetName": "NVIDIA GeForce RTX 4090",
    "nvmlDeviceGetUUID": UUID,
    "nvmlDeviceGetUUID_1": SECOND,
    "nvmlDeviceGetSerial": "!3",
    "nvmlDeviceGetCudaComputeCapability": "8,9",
    "nvmlDeviceGetMemoryInfo_v2": f"{24564 * MIB},{484 * MIB},{24080 * MIB},0",
    "nvmlDeviceGetMemoryInfo": f"{24564 * MIB},{24080 * MIB},{484 * MIB}",
    "nvmlDeviceGetMaxPcieLinkGeneration": "4",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": "4",
    "nvmlDeviceGetCurrPcieLinkGeneration": "4",
    "nvmlDeviceGetPowerManagementLimit": "450000",
    "nvmlDeviceGetPowerManagementDefaultLimit": "450000",
    "nvmlDeviceGetPowerManagementLimitConstraints": "150000,600000",
    "nvmlDeviceGetEnforcedPowerLimit": "450000",
    "nvmlDeviceGetPowerUsage": "21000",
    "nvmlDeviceGetEccMode": "0,0",
    "nvmlDeviceGetMigMode": "!3",
    "nvmlDeviceGetTotalEccErrors": "!3",
    "nvmlDeviceGetRemappedRows": "!3",
    "nvmlDeviceGetVirtualizationMode": "0",
    "nvmlDeviceGetMaxClockInfo": "3105,10501",
    "nvmlDeviceGetClockInfo": "2520,10501",
    # Something runs on it while it is watched.
    "nvmlDeviceGetUtilizationRates": "90",
    "nvmlDeviceGetCurrentClocksEventReasons": "4",
}


@dataclass(frozen=True, kw_only=True)
class Rental:
    """Where its libraries lie, and an environment with code for the card."""

    libraries: Path
    python: Path

    def environment(self, **told: str | int) -> dict[str, str]:
        """Return the variables of a process on it; `told` are faults."""
        place = {"LD_LIBRARY_PATH": os.fspath(self.libraries)}
        return {**HEALTHY, **place, **{name: str(value) for name, value in told.items()}}


@pytest.fixture(scope="session")
def rental(library: str, nvml: Path, tmp_path_factory: pytest.TempPathFactory) -> Rental:  # noqa: F811
    """Return a machine with the card."""
    folder = tmp_path_factory.mktemp("rental")
    libraries = folder / "libraries"
    libraries.mkdir()
    shutil.copy(library, libraries)
    shutil.copy(nvml / "libnvidia-ml.so.1", libraries)
    # Machine code for sm_80 and PTX of it: both run on sm_89.
    python = venv(folder / "venv", wheel(folder, "gpu-package", "1.0", CODE)) / "bin" / "python"
    return Rental(libraries=libraries, python=python)
