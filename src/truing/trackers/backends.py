"""Third-party trackers behind one interface: log a step's numbers, and close."""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

IDS_FILE = "track.json"
"""File of the run with its ids in the trackers, so that a resumed run continues the same entries."""


class Backend(Protocol):
    """A tracker."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log numbers by name, for a step counted over all stages."""
        ...

    def close(self) -> None:
        """Send the rest."""
        ...


class TensorBoard:
    """Event files in the run directory: ``tensorboard --logdir RUN``."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(out / "tensorboard"))
        self.writer.add_text("recipe", f"```\n{json.dumps(config, indent=2)}\n```")

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log a scalar for each number."""
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)
        self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        self.writer.close()


class Wandb:
    """Weights & Biases; ``WANDB_MODE=offline`` keeps it on this machine."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        import wandb

        name, run_id = out.resolve().name, tracker_id(out, "wandb", lambda: uuid.uuid4().hex[:12])
        self.run = wandb.init(
            project=project, name=name, id=run_id, resume="allow", config=dict(config), dir=str(out)
        )
        # a rollback repeats steps, and W&B's own steps only grow
        self.run.define_metric("step", hidden=True)
        self.run.define_metric("*", step_metric="step")

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log all numbers at once, with their step."""
        self.run.log({**numbers, "step": step})

    def close(self) -> None:
        """Wait until everything is sent."""
        self.run.finish()


class Trackio:
    """Trackio, which keeps runs on this machine: ``trackio show``."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        import trackio

        name = tracker_id(out, "trackio", lambda: f"{out.resolve().name}-{uuid.uuid4().hex[:6]}")
        self.run = trackio.init(project=project, name=name, resume="allow", config=dict(config), embed=False)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log all numbers at once."""
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Wait until everything is written; without this, trackio prints its summary again at exit."""
        import trackio

        trackio.finish()


class Mlflow:
    """MLflow at ``MLFLOW_TRACKING_URI``; without one, a database in the working directory."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no telemetry without consent
        import mlflow

        experiment = mlflow.set_experiment(project)
        self.client, name = mlflow.MlflowClient(), out.resolve().name
        created: list[str] = []

        def create() -> str:
            created.append(self.client.create_run(experiment.experiment_id, run_name=name).info.run_id)
            return created[0]

        self.run_id = tracker_id(out, "mlflow", create)
        if created:
            self.client.log_dict(self.run_id, dict(config), "recipe.json")
            self._log_parameters(config)

    def _log_parameters(self, config: Mapping[str, Any]) -> None:
        """Log the keys of the recipe, which MLflow shows, sorts and searches, in as many calls as needed."""
        from mlflow.entities import Param
        from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH, MAX_PARAMS_TAGS_PER_BATCH

        params = [Param(key, str(value)[:MAX_PARAM_VAL_LENGTH]) for key, value in _flat(config)]
        for first in range(0, len(params), MAX_PARAMS_TAGS_PER_BATCH):
            self.client.log_batch(self.run_id, params=params[first : first + MAX_PARAMS_TAGS_PER_BATCH])

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log all numbers at once."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, number, now, step) for name, number in numbers.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def close(self) -> None:
        """Mark the run as ended."""
        self.client.set_terminated(self.run_id)


BACKENDS: Mapping[str, tuple[str, Callable[[str, Path, Mapping[str, Any]], Backend]]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", Wandb),
    "trackio": ("trackio", Trackio),
    "mlflow": ("mlflow", Mlflow),
}
"""By name in a recipe: the required module, and the backend."""


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a table with dots between their parts, and their values."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def tracker_id(out: Path, tracker: str, make: Callable[[], str]) -> str:
    """Return a tracker's id of this run, created the first time."""
    path = out / IDS_FILE
    ids = json.loads(path.read_text()) if path.exists() else {}
    if tracker not in ids:
        ids[tracker] = make()
        path.write_text(json.dumps(ids))
    return ids[tracker]
