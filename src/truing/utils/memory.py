"""Memory of this process: bytes in use and free, and a malloc that keeps freed memory for the next step.

glibc returns each large block to the system when it is freed, and requests it again: on a virtual machine
the resulting page faults are a third of a training step. The tensors of one step are those of the next.
"""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from truing.errors import OutOfMemoryError

GB = 1_000_000_000

# <malloc.h>
TRIM_THRESHOLD, MMAP_MAX = -1, -4
MAX_INT32 = 2**31 - 1

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a container; ``max`` means no limit."""

OUT_OF_MEMORY = re.compile(
    r"not enough memory|can't allocate memory|bad_alloc|could not (create|execute) a primitive(?! descriptor)"
)
"""Messages of torch, the C++ library and oneDNN when memory runs out on a CPU. A descriptor that cannot be
created is another error, such as shapes that do not fit."""

CLEAR_REFS = "/proc/self/clear_refs"
"""The file through which Linux resets the peak of resident memory."""


def keep_freed_memory() -> None:
    """Make glibc's malloc keep freed memory, for the whole process; other allocators are unchanged."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_MAX, 0)  # large blocks come from the heap as well
        mallopt(TRIM_THRESHOLD, MAX_INT32)  # whose free end is not returned


def release_freed_memory() -> None:
    """Return memory to the system that was freed and kept."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def bytes_in_use(device: torch.device) -> int:
    """Return the bytes in use: tensors on CUDA, else resident memory of the process less kept free memory."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    release_freed_memory()
    return psutil.Process().memory_info().rss


def bytes_free(device: torch.device) -> int:
    """Return the bytes that can still be allocated."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    available = psutil.virtual_memory().available
    limits = [Path(path).read_text().strip() for path in CGROUP_LIMITS if Path(path).exists()]
    remaining = [int(limit) - psutil.Process().memory_info().rss for limit in limits if limit.isdigit()]
    return max(0, min([available, *remaining]))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out: torch has a class for it on CUDA only."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or bool(OUT_OF_MEMORY.search(str(error)))


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Raise errors of torch, the C++ library and Python that mean that memory ran out as one that says so."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            "memory ran out",
            got=" ".join(str(error).split())[:300] or repr(error),
            remedy="free memory, or lower optimizer.memory and the number of answers at a time;"
            " everything up to the last checkpoint is kept",
        ) from error


def reset_peak(device: torch.device) -> None:
    """Reset the peak."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif os.access(CLEAR_REFS, os.W_OK):
        Path(CLEAR_REFS).write_text("5")


def peak_bytes(device: torch.device) -> int | None:
    """Return the peak of bytes in use since ``reset_peak``; None if the system does not report it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not os.access(CLEAR_REFS, os.W_OK):
        return None
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].removesuffix("kB")) * 1024
