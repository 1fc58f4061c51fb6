"""Trackers that others wrote, each as two calls: numbers of an update, and the end."""

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

IDS_FILE = "track.json"
"""File of the run with the ids that trackers know it by, so that a resumed run goes on in the same place."""


class Backend(Protocol):
    """Where numbers go."""

    def log(self, numbers: Mapping[str, float], update: int) -> None:
        """Numbers by name, of an update counted over all stages."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


class TensorBoard:
    """Event files in the run directory: ``tensorboard --logdir RUN``."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(out / "tensorboard"))
        self.writer.add_text("recipe", f"```\n{json.dumps(config, indent=2)}\n```")

    def log(self, numbers: Mapping[str, float], update: int) -> None:
        """A scalar each."""
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, update)
        self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        self.writer.close()


class Wandb:
    """Weights & Biases; ``WANDB_MODE=offline`` keeps it on this machine."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        import wandb

        name, own = out.resolve().name, tracker_id(out, "wandb", lambda: uuid.uuid4().hex[:12])
        self.run = wandb.init(
            project=project, name=name, id=own, resume="allow", config=dict(config), dir=str(out)
        )
        # a rollback makes an update again, and W&B's own steps only grow
        self.run.define_metric("update", hidden=True)
        self.run.define_metric("*", step_metric="update")

    def log(self, numbers: Mapping[str, float], update: int) -> None:
        """All at once, with the update they are of."""
        self.run.log({**numbers, "update": update})

    def close(self) -> None:
        """Wait until everything was sent."""
        self.run.finish()


class Trackio:
    """Trackio, which keeps runs on this machine: ``trackio show``."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        import trackio

        name = tracker_id(out, "trackio", lambda: f"{out.resolve().name}-{uuid.uuid4().hex[:6]}")
        self.run = trackio.init(project=project, name=name, resume="allow", config=dict(config), embed=False)

    def log(self, numbers: Mapping[str, float], update: int) -> None:
        """All at once."""
        self.run.log(dict(numbers), step=update)

    def close(self) -> None:
        """Wait until everything was written; finished by itself it would say so again at the very end."""
        import trackio

        trackio.finish()


class Mlflow:
    """MLflow at ``MLFLOW_TRACKING_URI``; without one, a database in the working directory."""

    def __init__(self, project: str, out: Path, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a trainer calls nobody unasked
        import mlflow

        experiment = mlflow.set_experiment(project)
        self.client, name = mlflow.MlflowClient(), out.resolve().name
        made: list[str] = []

        def create() -> str:
            made.append(self.client.create_run(experiment.experiment_id, run_name=name).info.run_id)
            return made[0]

        self.run_id = tracker_id(out, "mlflow", create)
        if made:
            self.client.log_dict(self.run_id, dict(config), "recipe.json")

    def log(self, numbers: Mapping[str, float], update: int) -> None:
        """All at once."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, number, now, update) for name, number in numbers.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def close(self) -> None:
        """Say that the run has ended."""
        self.client.set_terminated(self.run_id)


BACKENDS: Mapping[str, tuple[str, Callable[[str, Path, Mapping[str, Any]], Backend]]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", Wandb),
    "trackio": ("trackio", Trackio),
    "mlflow": ("mlflow", Mlflow),
}
"""By the name that a recipe gives it: the module that must be there, and how it is opened."""


def tracker_id(out: Path, tracker: str, make: Callable[[], str]) -> str:
    """The id that a tracker has for this run, made the first time."""
    path = out / IDS_FILE
    ids = json.loads(path.read_text()) if path.exists() else {}
    if tracker not in ids:
        ids[tracker] = make()
        path.write_text(json.dumps(ids))
    return ids[tracker]
