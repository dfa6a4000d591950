"""What a comparison ran on, and who else was using it meanwhile."""

import os
import platform
import resource
import subprocess
import time
from pathlib import Path

TICKS_S = os.sysconf("SC_CLK_TCK")


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def vector_sets():
    flags = Path("/proc/cpuinfo").read_text().split()
    known = ["avx2", "avx512f", "avx512_vnni", "avx_vnni", "asimd", "sve"]
    return [name for name in known if name in flags]


def describe(bandwidth_binary, threads):
    """`read_gb_s`: memory read bandwidth with as many threads as the engines get."""
    read = subprocess.run(
        [str(bandwidth_binary), str(threads)], capture_output=True, text=True, check=True
    )
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "vectors": vector_sets(),
        "system": f"{platform.system()} {platform.machine()}",
        "read_gb_s": float(read.stdout),
    }


def busy_seconds():
    """CPU seconds of everyone on this machine since it started; hypervisor's theft counts."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS_S


def wait_until_calm(share_max, seconds_max):
    """Until others leave the machine alone for three seconds, or for so long."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        with Watch() as watch:
            time.sleep(3)
        if watch.others <= share_max:
            return


class Watch:
    """Share of the machine's CPU time that others took while a child ran."""

    def __enter__(self):
        self.start = time.monotonic(), busy_seconds(), self.children()
        return self

    def __exit__(self, *_):
        wall = time.monotonic() - self.start[0]
        others = busy_seconds() - self.start[1] - (self.children() - self.start[2])
        self.others = max(0.0, others / (wall * os.cpu_count()))

    @staticmethod
    def children():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
