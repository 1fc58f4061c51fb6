"""The report of a bisection: the code of the first differing part, or findings of rules without one."""

from collections.abc import Mapping, Sequence

from truing.doctor.bisect import Part, Trial, first_differing
from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import Step
from truing.doctor.verdict import FINDING_VERDICTS, Finding

CODE_LOCATIONS: Mapping[Part, str] = {
    "template": "truing.chat.render:render_prompt",
    "ids": "truing.algos.flatten:flatten",
    "draws": "truing.engines.base:draw_ids",
    "sampler": "truing.engines.local.engine:LocalEngine",
    "old": "truing.learner.scoring:with_old_logprobs",
    "reward": "truing.rewards.grade:grade",
    "mask": "truing.ops.masks:exclusion_reasons",
    "reference": "truing.learner.scoring:with_reference_logprobs",
    "critic": "truing.learner.scoring:with_values",
    "advantage": "truing.algos.{}:compute_advantages",
    "forward": "truing.models.forward.score:score",
    "loss": "truing.ops.losses:policy_loss",
    "optimizer": "truing.learner.optimizer:clip_and_step",
    "metrics": "truing.metrics.step:step_metrics",
}
"""The code of each part of Truing's trainer; each algorithm has its own advantages."""

SUPERVISED_LOCATIONS: Mapping[Part, str] = {
    "ids": "truing.algos.flatten:as_demonstration",
    "mask": "truing.ops.masks:supervised_mask",
    "loss": "truing.ops.losses:cross_entropy_loss",
}
"""The same for training on demonstrations."""


def code_location(part: Part, stage: str) -> str:
    """Return the module and function of a part, the first place to check."""
    supervised = SUPERVISED_LOCATIONS if stage in ("sft", "rft") else {}
    return supervised.get(part, CODE_LOCATIONS[part]).format(stage)


def unexplained_findings(step: Step, trials: Sequence[Trial], suppressed: Mapping[str, str]) -> list[Finding]:
    """Return the findings of rules in a step without a differing part."""
    if first_differing(trials):
        return []
    findings = Diagnosis(select_rules(), suppressed).add(step)
    return [each for each in findings if each.claim.verdict in FINDING_VERDICTS]
