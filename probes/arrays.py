"""What one access to each array of a .npz or .npy file really costs in resident memory, with this interpreter's numpy.

Run as `python - FILE NAME… < arrays.py`, on Linux. Arrays are dropped one after the other; objects are never unpickled.
"""

import importlib
import json
import sys
import time


def read_status(key):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(key)


def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def measure(name, access, *words):
    forget_peak()
    before = read_status("VmRSS")
    begun = time.monotonic()
    value = access(*words)
    seconds = time.monotonic() - begun
    told = {
        "name": name,
        "grown_bytes": read_status("VmRSS") - before,
        "peak_bytes": read_status("VmHWM") - before,
        "seconds": round(seconds, 6),
        "mapped": type(value).__name__ == "memmap",
    }
    del value
    return told


def look(path, names):
    numpy = importlib.import_module("numpy")
    loaded = numpy.load(path, mmap_mode="r", allow_pickle=False)
    if not hasattr(loaded, "files"):
        del loaded
        return [measure(names[0], lambda: numpy.load(path, mmap_mode="r", allow_pickle=False))], numpy.__version__
    rows = []
    for name in names:
        try:
            rows.append(measure(name, loaded.__getitem__, name))
        except Exception as error:
            rows.append({"name": name, "why_not": f"{type(error).__name__}: {error}"})
    return rows, numpy.__version__


def main():
    told = {"rows": [], "numpy": None, "error": None}
    if len(sys.argv) > 2:
        try:
            told["rows"], told["numpy"] = look(sys.argv[1], sys.argv[2:])
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(told))


main()
