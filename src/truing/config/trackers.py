"""Trackers and alerts."""

from collections.abc import Iterator
from typing import Literal

from truing.config.sections import FrozenModel


class TrackConfig(FrozenModel):
    """Trackers that receive the metrics of each step (extra `trackers`); docs/tracking.md."""

    to: tuple[Literal["wandb", "trackio", "tensorboard", "mlflow"], ...] = ()
    """Names of the trackers."""
    project: str = "truing"
    """Project, or experiment, of the run in the tracker."""
    names: Literal["truing", "trl"] = "truing"
    """`trl`: metrics that TRL has too get its names as well, such as `train/reward`; so in TRL scripts."""


class AlertsConfig(FrozenModel):
    """Alerts, sent when a condition becomes true, or on an event."""

    when: tuple[str, ...] = ()
    """Conditions on metrics: `reward/mean < 0.1`, or `kl_all/k3 > 0.5 for 3`, which means for 3 steps."""
    on: tuple[Literal["finding", "rollback", "incident", "stopped", "finished"], ...] = (
        "finding",
        "rollback",
        "stopped",
    )
    """Events."""
    command: str = ""
    """A shell command, with the alert as JSON on its standard input and as text in `$TRUING_ALERT`."""
    webhook: str = ""
    """A URL that gets the alert as a JSON POST, its text as `text`; or `$NAME`, an environment variable."""

    def contradictions(self) -> Iterator[str]:
        """Refuse a condition without a command or webhook."""
        if self.when and not (self.command or self.webhook):
            yield "alerts.when has no receiver: set alerts.command or alerts.webhook"
