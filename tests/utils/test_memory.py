"""Freed memory stays with the process."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from truing.utils.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def step():
    x = torch.ones(25_000_000)
    return (x * x + x).sum()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):  # it takes some until the heap has room for each
    step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is on Linux")
def test_large_tensors_are_not_paged_in_again():
    def pages(mode):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert 10 * pages("keep") < pages("leave")
