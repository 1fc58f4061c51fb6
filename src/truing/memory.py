"""The process's memory: what a step has freed stays, for the next one.

glibc gives each large block back to the system when it is freed, and asks for it anew: on a virtual machine
the page faults of that are a third of a training step. The tensors of one step are those of the next.
"""

import ctypes

# <malloc.h>
TRIM_THRESHOLD, MMAP_MAX = -1, -4
MOST = 2**31 - 1


def keep_freed_memory() -> None:
    """Let malloc keep what is freed, for the whole process; nothing happens where it is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_MAX, 0)  # large blocks come from the heap as well
        mallopt(TRIM_THRESHOLD, MOST)  # whose free end is not given back
