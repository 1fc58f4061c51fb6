"""The run directory of a TRL script: ``truing``, ``truing-2``, … in its ``output_dir``."""

from pathlib import Path

from truing.errors import RecordError


def run_directory(output: Path, resume: str | bool | None) -> Path:
    """Return a new run directory in ``output``, or with ``resume`` the newest one (True) or that path."""
    if isinstance(resume, str):
        if not (Path(resume) / "recipe.toml").is_file():
            raise RecordError(
                "resume_from_checkpoint is no run directory",
                got=resume,
                expected="True, for the newest run in output_dir, or a run such as output_dir/truing",
                remedy="a checkpoint is a part of its run, which continues from the newest one",
            )
        return Path(resume)
    names = (output / ("truing" if i == 1 else f"truing-{i}") for i in range(1, 10_000))
    runs = [path for path in output.glob("truing*") if path.is_dir()]
    if not resume:
        return next(path for path in names if not path.exists())
    if not runs:
        raise RecordError("there is no run to resume", got=output, expected="a run directory in output_dir")
    return max(runs, key=lambda path: path.stat().st_mtime)
