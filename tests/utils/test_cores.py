"""The usable cores: by affinity, and by the limits of control groups, of either version."""

import os

import pytest

from truing.utils import cores
from truing.utils.cores import usable_cores


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that sets the affinity, the process's control group, and the kernel's files."""

    def build(affinity, own="0::/\n", **files):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)))
        monkeypatch.setattr(cores, "CGROUPS", tmp_path)
        monkeypatch.setattr(cores, "OWN_CGROUP", tmp_path / "own")
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_max", ".max").replace("cpu_cfs", "cpu.cfs")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return build


@pytest.mark.parametrize(
    ("affinity", "own", "files", "expected"),
    [
        (8, "0::/\n", {}, 8),
        (8, "", {}, 8),
        (8, "0::/\n", {"cpu_max": "max 100000\n"}, 8),
        (8, "0::/\n", {"cpu_max": "200000 100000\n"}, 2),
        (8, "0::/\n", {"cpu_max": "150000 100000\n"}, 1),
        (8, "0::/\n", {"cpu_max": "20000 100000\n"}, 1),
        (1, "0::/\n", {"cpu_max": "400000 100000\n"}, 1),
        (8, "0::/slice/job\n", {"slice__job__cpu_max": "300000 100000\n"}, 3),
        (8, "0::/slice/job\n", {"slice__cpu_max": "300000 100000\n", "slice__job__cpu_max": "max 100000"}, 3),
        (8, "0::/slice/job\n", {"cpu_max": "500000 100000\n", "slice__cpu_max": "600000 100000\n"}, 5),
        (8, "4:cpu:/\n", {"cpu__cpu_cfs_quota_us": "-1\n", "cpu__cpu_cfs_period_us": "100000\n"}, 8),
        (8, "4:cpu:/\n", {"cpu__cpu_cfs_quota_us": "250000\n", "cpu__cpu_cfs_period_us": "100000\n"}, 2),
    ],
)
def test_cores_are_those_of_the_smallest_limit(machine, affinity, own, files, expected):
    machine(affinity, own, **files)
    assert usable_cores() == expected
