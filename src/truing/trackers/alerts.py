"""Alerts: a command or webhook is called when a declared condition begins to hold, or at an event."""

import math
import operator
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.config import AlertsConfig
from truing.errors import RecipeError, RecordError
from truing.metrics.definitions import check_metric_names
from truing.utils.http_request import request
from truing.utils.jsonl import dump_json

COMPARISONS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
CONDITION = re.compile(r"\s*(\S+)\s*(<=|>=|<|>)\s*(\S+?)\s*(?:for\s+(\d+))?\s*")
TIMEOUT_SECONDS = 10.0
"""Seconds that a command or an endpoint may take."""


@dataclass(frozen=True)
class Condition:
    """A metric beyond a bound, for ``steps`` consecutive steps."""

    text: str
    metric: str
    comparison: str
    bound: float
    steps: int

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Parse ``reward/mean < 0.1`` or ``kl_all/k3 > 0.5 for 3``."""
        match = CONDITION.fullmatch(text)
        try:
            if match is None:
                raise ValueError("not a comparison")
            condition = cls(text, match[1], match[2], float(match[3]), int(match[4] or 1))
            if condition.steps < 1 or not math.isfinite(condition.bound):
                raise ValueError("it could never hold")
            check_metric_names([condition.metric])
        except (ValueError, RecordError) as error:
            raise RecipeError(
                "alerts.when has an invalid condition",
                got=text,
                expected='METRIC < NUMBER, or >, <=, >=, as in "reward/mean < 0.1 for 3"',
                remedy="`truing explain metrics` has the metrics",
            ) from error
        return condition

    def holds(self, value: float) -> bool:
        """Whether a value is beyond the bound."""
        return COMPARISONS[self.comparison](value, self.bound)


class Alerts:
    """Sends alerts on a run's events; a condition alerts when it begins to hold, and again after a break."""

    def __init__(self, cfg: AlertsConfig, name: str, out: Path) -> None:
        self.cfg, self.name, self.out = cfg, name, out
        self.steps_held = dict.fromkeys(map(Condition.parse, cfg.when), 0)
        self.webhook = _from_environment(cfg.webhook)

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Handle an event."""
        if kind == "step":
            self._check_conditions(facts["record"])
        elif kind in self.cfg.on:
            position = {key: facts[key] for key in ("stage", "step") if key in facts}
            label = "" if "verdict" in facts else f"{kind}: "  # the text of a rule names its verdict
            self.send({"kind": kind, "text": f"{self.name}: {label}{_event_text(facts)}", **position})

    def _check_conditions(self, record: Any) -> None:
        """Count the steps for which each condition holds; a missing metric changes nothing."""
        for condition, count in self.steps_held.items():
            value = record.metrics.get(condition.metric)
            if value is None:
                continue
            self.steps_held[condition] = count + 1 if condition.holds(value) else 0
            if self.steps_held[condition] == condition.steps:
                position = f"step {record.step + 1} of {record.stage}"
                text = f"{self.name}: {condition.text}: it is {value:.4g} in {position}"
                facts = {"stage": record.stage, "step": record.step, "metric": condition.metric}
                self.send({"kind": "condition", "text": text, **facts, "value": value})

    def send(self, alert: Mapping[str, Any]) -> None:
        """Run the command, with the alert as JSON on its input; post it to the webhook."""
        alert = {**alert, "run": str(self.out)}
        data = dump_json(alert)
        if self.cfg.command:
            process = subprocess.run(
                self.cfg.command,
                shell=True,
                check=False,
                input=data,
                env={**os.environ, "TRUING_ALERT": alert["text"]},
                timeout=TIMEOUT_SECONDS,
                capture_output=True,
            )
            if process.returncode:
                raise ChildProcessError(f"alerts.command ended with exit code {process.returncode}")
        if self.webhook:
            post(self.webhook, data)

    def close(self) -> None:
        """Do nothing: alerts are sent at once."""


def post(address: str, data: bytes) -> None:
    """Post JSON; errors omit the address, which is a secret."""
    try:
        answer = request(
            "POST", address, TIMEOUT_SECONDS, content=data, headers={"Content-Type": "application/json"}
        )
    except (OSError, ValueError) as error:
        cause = error.__cause__ or error
        raise ConnectionError(f"alerts.webhook cannot be reached: {type(cause).__name__}") from None
    if answer.status >= 400:
        raise ConnectionError(f"alerts.webhook answered {answer.status}")


def _event_text(facts: Mapping[str, Any]) -> str:
    """Return an event as text."""
    if "estimates" in facts:
        return ", ".join(f"{name} {estimate['mean']:.3f}" for name, estimate in facts["estimates"].items())
    return str(facts.get("text") or facts.get("reason") or dict(facts))


def _from_environment(address: str) -> str:
    """Return an address; ``$NAME`` reads it from the environment, since the recipe is recorded."""
    if not address.startswith("$"):
        return address
    if not os.environ.get(address[1:]):
        raise RecipeError(
            f"alerts.webhook names {address}, which is not set", expected=f"export {address[1:]}=https://…"
        )
    return os.environ[address[1:]]
