"""An audit of another trainer's run, judged by every rule."""

from pathlib import Path
from typing import Any

from truing.doctor.postmortem import post_mortem
from truing.doctor.report import facts


def judged(folder: Path) -> dict[str, Any]:
    """What `truing check` says of it."""
    return facts(post_mortem(folder))
