"""What a bisection comes to: where a guilty part is written, or what rules find and no swap shows."""

from collections.abc import Mapping, Sequence

from truing.doctor.bisect import Part, Trial, guilty
from truing.doctor.diagnosis import Diagnosis, chosen
from truing.doctor.evidence import Step
from truing.doctor.verdict import FINDINGS, Finding

HOMES: Mapping[Part, str] = {
    "template": "truing.chat.render:render_prompt",
    "ids": "truing.rollouts.flatten:flatten",
    "draws": "truing.engines.base:draw_ids",
    "sampler": "truing.engines.local.engine:HFSampler",
    "old": "truing.learner.step:with_old",
    "reward": "truing.rewards.grade:grade",
    "mask": "truing.ops.masks:excluded",
    "reference": "truing.learner.step:with_reference",
    "critic": "truing.learner.step:with_values",
    "advantage": "truing.algos.{}:credit",
    "forward": "truing.models.forward.score:score",
    "loss": "truing.ops.losses:policy_loss",
    "optimizer": "truing.learner.optimizer:clip_and_step",
    "metrics": "truing.metrics.update:step_metrics",
}
"""Where each part of Truing's own trainer is made; an algorithm has its own advantages."""

SUPERVISED: Mapping[Part, str] = {
    "ids": "truing.rollouts.flatten:as_demonstration",
    "mask": "truing.ops.masks:supervised_mask",
    "loss": "truing.ops.losses:cross_entropy_loss",
}
"""The same where demonstrations are trained on."""


def home(part: Part, stage: str) -> str:
    """The module and function in which a guilty part is to be looked for first."""
    supervised = SUPERVISED if stage in ("sft", "rft") else {}
    return supervised.get(part, HOMES[part]).format(stage)


def unexplained(step: Step, trials: Sequence[Trial], suppressed: Mapping[str, str]) -> list[Finding]:
    """What rules find in an update of which no swapped part differs."""
    if guilty(trials):
        return []
    found = Diagnosis(chosen(), suppressed).add(step)
    return [each for each in found if each.claim.verdict in FINDINGS]
