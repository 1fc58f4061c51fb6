"""Who follows a run: trackers and alerts."""

from typing import Literal

from pydantic import model_validator

from truing.config.sections import FrozenModel


class TrackConfig(FrozenModel):
    """Trackers that the metrics of each step are sent to (extra `trackers`); docs/tracking.md."""

    to: tuple[Literal["wandb", "trackio", "tensorboard", "mlflow"], ...] = ()
    """Which ones."""
    project: str = "truing"
    """What they file the run under: a project, or an experiment."""


class AlertsConfig(FrozenModel):
    """Calls somebody when a condition begins to hold, or when something happens."""

    when: tuple[str, ...] = ()
    """Conditions on metrics: `reward/mean < 0.1`, or `kl_all/k3 > 0.5 for 3`, which is for 3 steps."""
    on: tuple[Literal["finding", "rollback", "incident", "stopped", "finished"], ...] = (
        "finding",
        "rollback",
        "stopped",
    )
    """Events."""
    command: str = ""
    """A shell command, with the alert as JSON on its input and in words in `$TRUING_ALERT`."""
    webhook: str = ""
    """An address that it is posted to as JSON, in words as `text`; or `$NAME`, from the environment."""

    @model_validator(mode="after")
    def _heard(self) -> "AlertsConfig":
        """Refuse a condition that nobody would hear of."""
        if self.when and not (self.command or self.webhook):
            raise ValueError("alerts.when calls nobody: give alerts.command or alerts.webhook")
        return self
