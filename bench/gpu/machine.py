# SPDX-License-Identifier: Apache-2.0
"""What this machine has: its first GPU as the driver tells it, free memory, and where CUDA's libraries lie.

Standard library only. No context is made on the GPU.
"""
import ctypes
import glob
import os
import pathlib
import sys

DRIVERS = ("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


def find_gpu():
    """{"name", "memory_bytes", "capability"} of GPU 0, or None."""
    for path in DRIVERS:
        try:
            driver = ctypes.CDLL(path)
            break
        except OSError:
            continue
    else:
        return None
    count, device, value = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return None
    if driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t(0)
    driver.cuDeviceGetName(name, 256, device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    capability = []
    for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR):
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(str(value.value))
    version = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    return {"name": name.value.decode(), "memory_bytes": memory.value, "capability": ".".join(capability),
            "driver_cuda": f"{version.value // 1000}.{version.value % 1000 // 10}", "gpus": count.value}


def available_memory():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def library_path(build):
    """LD_LIBRARY_PATH that also finds what a build brought along (lib/) and CUDA's libraries where they lie."""
    folders = [str(pathlib.Path(build) / "lib"), "/usr/local/cuda/lib64"]
    for site in sys.path:
        folders += sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))
    given = os.environ.get("LD_LIBRARY_PATH")
    return ":".join(([given] if given else []) + [f for f in folders if os.path.isdir(f)])
