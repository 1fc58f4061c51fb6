"""TensorBoard's event files, read with TensorBoard's own reader."""

from pathlib import Path

from truing.doctor.importers.log import Log, Point
from truing.errors import RecordError

FILES = "events.out.tfevents.*"


def found_in(folder: Path) -> list[Path]:
    """Return the folders with events below a folder: one for each run."""
    return sorted({path.parent for path in folder.rglob(FILES)})


def read(path: Path) -> Log:
    """Return all scalars of a file, or of the files of a folder."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise RecordError(
            "tensorboard is not installed",
            got=path,
            expected="its reader of event files",
            remedy="pip install tensorboard, or export the scalars as CSV",
        ) from error
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})  # 0 keeps all of them
    events.Reload()
    points = [
        Point(event.step, {name: event.value}, f"{path}, {name},")
        for name in events.Tags()["scalars"]
        for event in events.Scalars(name)
    ]
    if not points:
        raise RecordError(f"{path} has no scalar", expected="events of add_scalar", remedy="name the run")
    return Log("TensorBoard's events", points)
