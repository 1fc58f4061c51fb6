"""Success criteria that field reports name, as they stand in a run, each as it should read.

Some criteria are wrong as they were written (docs/control.md): what is then judged is what they were after.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from truing.config import PolicyStage, Recipe

Verdict = Literal["pass", "fail", "fact", "not checked"]

ROUNDING = {"cpu": 1e-3, "cuda": 0.2}
"""Nats by which sampler and trainer may differ with the same weights: fp32, and bf16."""

START = {"cpu": 1e-4, "cuda": 1e-2}
"""Nats per token by which a policy may differ from a reference that it has just become."""

FAULTS = ("zero_gradient", "all_masked")
"""Loss labels of updates that should have moved something and did not."""

EMPTY = ("no_signal", "held_back")
"""Labels of steps that had nothing to move, or were not to; a run of nothing else teaches nothing."""

FIRST_CALLS = 50
"""Steps in which the policy must have learnt to make a valid call."""


class Step(Protocol):
    """An update, as the record has it or as it was just made."""

    @property
    def stage(self) -> str:
        """Of which stage."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Its numbers."""
        ...

    @property
    def loss_label(self) -> str:
        """What its loss means."""
        ...


@dataclass(frozen=True)
class Criterion:
    """A criterion: as a report has it, as it should read, what was measured, and whether that is so."""

    name: str
    report: str
    reading: str
    measured: str
    verdict: Verdict


def scorecard(
    steps: Sequence[Step], recipe: Recipe, device: str, events: Sequence[str] = ()
) -> list[Criterion]:
    """Every criterion over the steps of policy stages.

    Args:
        steps: of a run, in order; those of other stages are left out.
        recipe: that it was run with.
        device: `cpu` or `cuda`: what rounding is.
        events: kinds of what happened in the run.
    """
    judged = [step for step in steps if isinstance(recipe.stage(step.stage), PolicyStage)]
    at_once = {name for name in recipe.stages if _passes(recipe.stage(name)) == 1}
    once = [step for step in judged if step.stage in at_once]
    return [
        _learnable(judged, recipe),
        _alignment(judged),
        _first_ratio(judged, recipe, device),
        _later_ratio([step for step in judged if step.stage not in at_once], once),
        _kl(judged, once, device),
        _active(judged, once),
        _loss(judged),
        _tools(judged),
        _critic(judged),
        _stability(judged, events),
    ]


def _passes(stage: object) -> int:
    """How many updates of the weights a step of a policy stage makes; 0 for other stages."""
    return stage.inner_epochs * stage.minibatches if isinstance(stage, PolicyStage) else 0


def _learnable(steps: Sequence[Step], recipe: Recipe) -> Criterion:
    shares, least = _values(steps, "tokens/learnable_share"), recipe.gates.min_trained_share
    verdict: Verdict = "fact" if shares else "not checked"
    if shares and least:
        verdict = "pass" if min(shares) >= least else "fail"
    return Criterion(
        "learnable tokens",
        "> 30 % of tokens are learnable",
        "a fact about the mask and no success; judged where gates.min_trained_share asks for a share",
        _span(shares, "{:.1%}"),
        verdict,
    )


def _alignment(steps: Sequence[Step]) -> Criterion:
    shares = _values(steps, "alignment")
    return Criterion(
        "alignment",
        "> 99 % of ids agree",
        "every id that is scored is the id that was drawn: exactly 1",
        f"least {min(shares):.6g}" if shares else "",
        _judge(shares, all(share == 1.0 for share in shares)),
    )


def _first_ratio(steps: Sequence[Step], recipe: Recipe, device: str) -> Criterion:
    most = _values(steps, "mismatch/max_abs")
    verdict = _judge(most, max(most, default=0.0) <= ROUNDING[device])
    dropout = bool(recipe.lora and recipe.lora.dropout)
    return Criterion(
        "ratio at the first update",
        "mean in [0.8, 1.2], std < 0.5",
        f"1 to rounding, token by token: |trainer − sampler| ≤ {ROUNDING[device]:g} nats, weights unmoved",
        f"largest {max(most):.2g} nats{', lora.dropout being on' * dropout}" if most else "",
        "fact" if dropout and most else verdict,
    )


def _later_ratio(several: Sequence[Step], once: Sequence[Step]) -> Criterion:
    spread, still = _values(several, "ratio/std"), _values(once, "ratio/std")
    measured = f"std {_span(spread, '{:.2g}')}" if spread else "one update a step"
    return Criterion(
        "ratio at later updates",
        "std 0.1 to 0.3, or nothing can be learnt",
        "it moves from the second update of a step on; with one update it stays 1, and that is right",
        measured if spread or still else "",
        "fact" if still and not spread else _judge(spread, any(std > 1e-7 for std in spread)),
    )


def _kl(steps: Sequence[Step], once: Sequence[Step], device: str) -> Criterion:
    tokens, sequences = _values(steps, "kl_all/k3"), _values(steps, "kl_sequence/k1")
    stages = {step.stage: step for step in reversed(once)}  # the first step of each
    starts = _values(list(stages.values()), "kl_all/k3")
    return Criterion(
        "KL to the reference",
        "< 0.5 nats a token, always < 3",
        "never negative, and 0 at the start of the stage; what counts is the sum over an answer",
        f"{_span(tokens, '{:.2g}')} a token, {_span(sequences, '{:.2g}')} an answer" if tokens else "",
        _judge(tokens, min(tokens, default=0.0) >= 0 and max(starts, default=0.0) <= START[device]),
    )


def _active(steps: Sequence[Step], once: Sequence[Step]) -> Criterion:
    clipped, active = _values(steps, "clip/clipped_share"), _values(steps, "clip/active_share")
    first = _values(once, "clip/clipped_share")
    return Criterion(
        "active tokens",
        "> 60 % inside the clip range",
        "no token is clipped by the first update; later shares differ by objective, so no band fits all",
        f"clipped {_span(clipped, '{:.1%}')}, active {_span(active, '{:.1%}')}" if clipped else "",
        "fact" if clipped and not first else _judge(first, not any(first)),
    )


def _loss(steps: Sequence[Step]) -> Criterion:
    labels = [step.loss_label for step in steps]
    counts = ", ".join(f"{label} {labels.count(label)}" for label in dict.fromkeys(labels))
    taught = any(label not in (*FAULTS, *EMPTY) for label in labels)
    return Criterion(
        "policy loss",
        "falls steadily",
        "says nothing of progress: it is near 0 on-policy; what must be is that updates move something",
        f"{counts}; reward {_ends(_values(steps, 'reward/mean'))}" if steps else "",
        _judge(labels, taught and not any(label in FAULTS for label in labels)),
    )


def _tools(steps: Sequence[Step]) -> Criterion:
    valid, early = _values(steps, "tools/valid_share"), len(steps) < FIRST_CALLS
    some = any(_values(steps[:FIRST_CALLS], "tools/valid_share"))
    return Criterion(
        "tool calls",
        f"valid by step {FIRST_CALLS}",
        f"some call within the first {FIRST_CALLS} steps is one that the world accepts",
        f"valid share {_ends(valid)}" if valid else "no call was made",
        "fact" if valid and early and not some else _judge(valid, some),
    )


def _critic(steps: Sequence[Step]) -> Criterion:
    moved, explained = _values(steps, "value/head_step"), _values(steps, "value/explained_variance")
    returns = [*_values(steps, "returns/mean"), *_values(steps, "returns/std")]
    return Criterion(
        "critic",
        "its loss falls",
        "its head moves where there is something to predict; how well is explained variance, 0 a constant",
        f"head moved by {_span(moved, '{:.2g}')}, explained variance {_ends(explained)}" if moved else "",
        "fact" if moved and not any(returns) else _judge(moved, any(moved)),
    )


def _stability(steps: Sequence[Step], events: Sequence[str]) -> Criterion:
    undone, gave_up = events.count("rollback"), "gave_up" in events
    return Criterion(
        "stability",
        "roll back where it is unstable",
        "no guard had to give the run up; rollbacks are told",
        f"{undone} rollbacks{', then given up' * gave_up}" if steps or undone else "",
        "fact" if undone and not gave_up else _judge([*steps, *events], not gave_up),
    )


def _judge(measured: Sequence[object], right: bool) -> Verdict:
    """Whether it is so; not checked where nothing was measured."""
    if not measured:
        return "not checked"
    return "pass" if right else "fail"


def _values(steps: Sequence[Step], name: str) -> list[float]:
    return [step.metrics[name] for step in steps if name in step.metrics]


def _span(values: Sequence[float], form: str) -> str:
    """The least and the most of them."""
    if not values:
        return ""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _ends(values: Sequence[float]) -> str:
    """The mean of the first tenth, and of the last."""
    if not values:
        return "not measured"
    few = max(1, len(values) // 10)
    return f"{sum(values[:few]) / few:.3f} → {sum(values[-few:]) / few:.3f}"
