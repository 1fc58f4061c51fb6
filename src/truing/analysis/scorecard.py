"""Evaluates success criteria from published reports over the steps of a run.

Some of what reports say is wrong (docs/verify.md); then the intended property is judged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from truing.analysis.current_events import current_events, fork_start
from truing.analysis.stage_gain import stage_evaluations, stage_gain
from truing.config import PolicyStage, Recipe
from truing.record import Event
from truing.record.malformed import as_record_error
from truing.record.step_columns import StepColumns
from truing.utils.format import with_count

CriterionVerdict = Literal["pass", "fail", "fact", "not checked"]

MAX_MISMATCH_NATS = {"float32": 1e-3, "bfloat16": 0.2}
"""Maximum nats between sampler and trainer with the same weights, by the precision that computes."""

MAX_START_KL = {"float32": 1e-4, "bfloat16": 1e-2}
"""Maximum nats per token between a policy and a reference with the same weights."""

FAULT_LABELS = ("zero_gradient", "all_masked")
"""Loss labels of steps that should have changed weights and did not."""

IDLE_LABELS = ("no_signal", "held_back")
"""Labels of steps without a gradient signal, or skipped ones; a run of only these learns nothing."""

MOSTLY = 0.5
"""Of the groups."""

FIRST_CALL_STEPS = 50
"""Steps within which some tool call must be valid."""


@dataclass(frozen=True)
class SuccessCriterion:
    """A criterion: what reports say, what is expected, the measurement, and the verdict."""

    name: str
    report: str
    reading: str
    measured: str
    verdict: CriterionVerdict


def scorecard(
    columns: StepColumns, recipe: Recipe, device: str, events: Sequence[Event] = ()
) -> list[SuccessCriterion]:
    """Return every criterion over the steps of policy stages.

    Args:
        columns: of a run, in order; other stages are left out.
        recipe: of the run.
        device: `cpu` or `cuda`, which sets the rounding bounds.
        events: of the run.
    """
    with as_record_error("the run: its recipe and its steps"):
        stages = {name: recipe.stage(name) for name, _, _ in columns.stages}
        for name in stages:
            columns = columns.without_first(name, fork_start(events, name))  # they are of the parent
    policy_stages = [name for name, cfg in stages.items() if isinstance(cfg, PolicyStage)]
    once = [name for name in policy_stages if stages[name].inner_epochs * stages[name].minibatches == 1]
    steps, single = columns.select_stages(policy_stages), columns.select_stages(once)
    precision = "bfloat16" if device == "cuda" else recipe.model.dtype
    multiple = columns.select_stages(set(policy_stages) - set(once))
    return [
        _learnable(steps, recipe),
        _alignment(steps),
        _first_ratio(steps, recipe, precision),
        _later_ratio(multiple, single),
        _kl(steps, single, precision),
        _active(steps, single),
        _loss(steps),
        _tools(steps),
        _critic(steps),
        _stability(steps, [event.kind for event in events]),
        _evaluations(recipe, policy_stages, events),
        _no_fault(steps, events),
    ]


def _learnable(steps: StepColumns, recipe: Recipe) -> SuccessCriterion:
    shares, min_share = steps.known_values("tokens/learnable_share"), recipe.gates.min_trained_share
    verdict: CriterionVerdict = "fact" if shares else "not checked"
    if shares and min_share:
        verdict = "pass" if min(shares) >= min_share else "fail"
    return SuccessCriterion(
        "learnable tokens",
        "> 30 % of tokens are learnable",
        "describes the mask, not success; judged only if gates.min_trained_share sets a share",
        _span(shares, "{:.1%}"),
        verdict,
    )


def _alignment(steps: StepColumns) -> SuccessCriterion:
    shares = steps.known_values("alignment")
    return SuccessCriterion(
        "alignment",
        "> 99 % of ids agree",
        "every scored id is the sampled id: exactly 1",
        f"lowest {min(shares):.6g}" if shares else "",
        _judge(shares, all(share == 1.0 for share in shares)),
    )


def _first_ratio(steps: StepColumns, recipe: Recipe, precision: str) -> SuccessCriterion:
    max_gaps = steps.known_values("mismatch/max_abs")
    verdict = _judge(max_gaps, max(max_gaps, default=0.0) <= MAX_MISMATCH_NATS[precision])
    dropout = bool(recipe.lora and recipe.lora.dropout)
    return SuccessCriterion(
        "ratio at the first optimizer step",
        "mean in [0.8, 1.2], std < 0.5",
        f"1 to rounding per token: |trainer − sampler| ≤ {MAX_MISMATCH_NATS[precision]:g} nats, same weights",
        f"largest {max(max_gaps):.2g} nats{', with lora.dropout' * dropout}" if max_gaps else "",
        "fact" if dropout and max_gaps else verdict,
    )


def _later_ratio(multiple: StepColumns, single: StepColumns) -> SuccessCriterion:
    spreads, single_std = multiple.known_values("ratio/std"), single.known_values("ratio/std")
    text = f"std {_span(spreads, '{:.2g}')}" if spreads else "one optimizer step per step"
    return SuccessCriterion(
        "ratio at later optimizer steps",
        "std 0.1 to 0.3, or nothing can be learned",
        "changes from the second optimizer step of a step on; with one it is 1, as expected",
        text if spreads or single_std else "",
        "fact" if single_std and not spreads else _judge(spreads, any(std > 1e-7 for std in spreads)),
    )


def _kl(steps: StepColumns, single: StepColumns, precision: str) -> SuccessCriterion:
    tokens, sequences = steps.known_values("kl_all/k3"), steps.known_values("kl_sequence/k1")
    first = [float(single.column("kl_all/k3")[start]) for _, start, _ in single.stages]
    starts = [kl for kl in first if not math.isnan(kl)]
    return SuccessCriterion(
        "KL to the reference",
        "< 0.5 nats per token, always < 3",
        "k3 of a token is never negative, and 0 at the start of a stage; compare the sum per rollout",
        f"{_span(tokens, '{:.2g}')} per token, {_span(sequences, '{:.2g}')} per rollout" if tokens else "",
        _judge(tokens, min(tokens, default=0.0) >= 0 and max(starts, default=0.0) <= MAX_START_KL[precision]),
    )


def _active(steps: StepColumns, single: StepColumns) -> SuccessCriterion:
    clipped, active = steps.known_values("clip/clipped_share"), steps.known_values("clip/active_share")
    first = single.known_values("clip/clipped_share")
    return SuccessCriterion(
        "active tokens",
        "> 60 % inside the clip range",
        "no token is clipped at the first optimizer step; later shares depend on the objective",
        f"clipped {_span(clipped, '{:.1%}')}, active {_span(active, '{:.1%}')}" if clipped else "",
        "fact" if clipped and not first else _judge(first, not any(first)),
    )


def _loss(steps: StepColumns) -> SuccessCriterion:
    labels: list[str] = steps.loss_label.to_pylist()
    counts = ", ".join(f"{label} {labels.count(label)}" for label in dict.fromkeys(labels))
    solved = steps.column("group/all_right_share").tolist()
    idle = sum(
        label in IDLE_LABELS and not share >= MOSTLY for label, share in zip(labels, solved, strict=True)
    )
    trained = any(label not in (*FAULT_LABELS, *IDLE_LABELS) for label in labels) and idle <= len(labels) / 2
    return SuccessCriterion(
        "policy loss",
        "falls steadily",
        "does not measure progress (≈ 0 on-policy); required: most steps change weights, or their tasks are"
        " solved",
        f"{counts}; reward {_ends(steps.known_values('reward/mean'))}" if labels else "",
        _judge(labels, trained and not any(label in FAULT_LABELS for label in labels)),
    )


def _tools(steps: StepColumns) -> SuccessCriterion:
    valid, too_early = steps.known_values("tools/valid_share"), len(steps) < FIRST_CALL_STEPS
    shares = steps.column("tools/valid_share")[:FIRST_CALL_STEPS]
    any_valid = bool((shares > 0).any())
    return SuccessCriterion(
        "tool calls",
        f"valid by step {FIRST_CALL_STEPS}",
        f"some tool call is valid within the first {FIRST_CALL_STEPS} steps, and at the end",
        f"valid share {_ends(valid)}" if valid else "no call was made",
        "fact" if valid and too_early and not any_valid else _judge(valid, any_valid and any(_last(valid))),
    )


def _critic(steps: StepColumns) -> SuccessCriterion:
    moves, explained = (
        steps.known_values("value/head_step"),
        steps.known_values("value/explained_variance"),
    )
    returns = [*steps.known_values("returns/mean"), *steps.known_values("returns/std")]
    return SuccessCriterion(
        "critic",
        "its loss falls",
        "the value head changes; explained variance measures the critic (0: a constant)",
        f"head moved by {_span(moves, '{:.2g}')}, explained variance {_ends(explained)}" if moves else "",
        "fact" if moves and not any(returns) else _judge(moves, any(moves)),
    )


def _stability(steps: StepColumns, events: Sequence[str]) -> SuccessCriterion:
    rollbacks, gave_up = events.count("rollback"), "gave_up" in events
    return SuccessCriterion(
        "stability",
        "roll back an unstable run",
        "the guard did not end the run; rollbacks are listed",
        f"{rollbacks} rollbacks{', then given up' * gave_up}" if len(steps) or rollbacks else "",
        "fact" if rollbacks and not gave_up else _judge([*range(len(steps)), *events], not gave_up),
    )


def _evaluations(recipe: Recipe, policy_stages: Sequence[str], events: Sequence[Event]) -> SuccessCriterion:
    stage = policy_stages[-1] if policy_stages else None
    gain = stage_gain(stage_evaluations(stage, recipe.stages, events)) if stage else None
    verdict: CriterionVerdict = "not checked"
    if gain is not None:
        verdict = "fail" if gain.is_loss else "pass" if gain.is_gain else "fact"
    return SuccessCriterion(
        "evaluation",
        "a consistent gain over the baseline",
        "fails if the interval of the paired difference over the stage is below 0",
        "" if gain is None else f"{stage}: {gain}",
        verdict,
    )


def _no_fault(steps: StepColumns, events: Sequence[Event]) -> SuccessCriterion:
    proven = [
        f"{each.payload['code']} at {each.payload['stage']} {each.payload['step'] + 1}"
        for each in current_events(events, "finding")
        if each.payload.get("verdict") == "PROVEN"
        and each.payload["step"] >= fork_start(events, each.payload["stage"])
    ]
    return SuccessCriterion(
        "proven faults",
        "none",
        "no rule proves a fault; `truing check` has the other findings",
        f"{with_count(len(proven), 'finding')}: {', '.join(proven[:3])}"
        if proven
        else "none"
        if len(steps)
        else "",
        _judge([*range(len(steps)), *proven], not proven),
    )


def _judge(measured: Sequence[object], passes: bool) -> CriterionVerdict:
    """Return pass or fail; not checked without a measurement."""
    if not measured:
        return "not checked"
    return "pass" if passes else "fail"


def _span(values: Sequence[float], form: str) -> str:
    """Return minimum and maximum as text."""
    if not values:
        return ""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _ends(values: Sequence[float]) -> str:
    """Return the means of the first and the last tenth as text."""
    if not values:
        return "not measured"
    last = _last(values)
    return f"{sum(values[: len(last)]) / len(last):.3f} → {sum(last) / len(last):.3f}"


def _last(values: Sequence[float]) -> Sequence[float]:
    """Return the last tenth."""
    return values[-max(1, len(values) // 10) :]
