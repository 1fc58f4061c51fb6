"""The mode of files that a library creates for their owner alone."""

import os
from pathlib import Path


def share_weights(*paths: Path) -> None:
    """Give files of weights the mode that a new file has: that of the umask.

    safetensors renames a temporary file that only its owner may read, so a server of another user could not
    load what it writes.
    """
    for path in paths:
        probe = path.with_name(f"{path.name}.mode")  # asking for the umask would change it for other threads
        handle = os.open(probe, os.O_CREAT | os.O_WRONLY, 0o666)
        try:
            path.chmod(os.fstat(handle).st_mode & 0o777)
        finally:
            os.close(handle)
            probe.unlink()
