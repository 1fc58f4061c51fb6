"""The CPU cores that this process may use."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return the number of cores by affinity, or by the CPU time of a container if that is less; at least 1.

    A share of a core is not counted: two threads on 1.5 cores wait for each other.
    """
    return max(1, min([len(os.sched_getaffinity(0)), *map(int, _cgroup_limits())]))


def _cgroup_limits() -> Iterator[float]:
    """Yield the CPU time per second of each limit on this process's control group.

    Version 2 has ``cpu.max`` ("QUOTA PERIOD", µs, "max PERIOD" without a limit) in each group from the
    process's own up to the root; a container shows its own as the root. Version 1 has two files, -1 if
    without a limit. https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    groups = [line.split(":", 2) for line in _text(OWN_CGROUP).splitlines()]
    own = next((Path(path.lstrip("/")) for number, _, path in groups if number == "0"), Path())
    limits = [_text(CGROUPS / group / "cpu.max") for group in (own, *own.parents)]
    first_version = CGROUPS / "cpu"
    limits.append(" ".join(_text(first_version / f"cpu.cfs_{name}_us") for name in ("quota", "period")))
    for quota, period in (limit.split() for limit in dict.fromkeys(limits) if limit.strip()):
        if quota != "max" and int(quota) > 0:
            yield int(quota) / int(period)


def _text(file: Path) -> str:
    """Return the text of a file of the kernel; empty if this kernel has none."""
    return file.read_text(encoding="ascii", errors="replace").strip() if file.is_file() else ""
