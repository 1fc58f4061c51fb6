"""The formulas that hold in all steps of a trace so far, as lines of a report."""

import math
from collections.abc import Iterator, Mapping

from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.formulas.advantage import EPSILONS, Formula, formulas_of
from truing.doctor.formulas.clip import Clip, clip_of
from truing.doctor.formulas.loss import Fit, Loss, loss_text, losses_of
from truing.utils.format import with_count

NONE = "none of the known formulas"

NO_LOSS = "no mean or sum of advantages and a KL alone: a clip, a correction or another term is in it"

ROUNDING = 1e-5
"""Nats: two forwards of the same weights in float32 differ by less."""

SAME_FACTOR = 1e-2
"""Of the factor of a loss: it is one number in all steps, or another aggregation."""


class Found:
    """What the rows of all steps so far agree on."""

    def __init__(self) -> None:
        self.advantages: set[Formula] | None = None
        self.losses: dict[Loss, Fit] | None = None
        self.advantage_steps = self.loss_steps = 0
        self.clip = Clip()
        self.clip_steps = 0
        self.old: set[str] | None = None
        self.apart: list[tuple[int, float]] = []  # the step, and the median difference of sampler and trainer

    def add(self, step: Step) -> None:
        """Keep what holds in one more step; one that cannot tell changes nothing."""
        self._add_logprobs(step)
        if (advantages := formulas_of(step)) is not None:
            self.advantage_steps += 1
            self.advantages = advantages if self.advantages is None else self.advantages & advantages
        if (losses := losses_of(step)) is not None:
            self._add_clip(step, losses)
            self.loss_steps += 1
            known = losses if self.losses is None else self.losses
            self.losses = {
                loss: max(fit, losses[loss], key=lambda each: each.kl_size)
                for loss, fit in known.items()
                if loss in losses and math.isclose(fit.factor, losses[loss].factor, rel_tol=SAME_FACTOR)
            }

    def _add_clip(self, step: Step, losses: Mapping[Loss, Fit]) -> None:
        """Keep which ratios have a gradient."""
        clips = (clip_of(step, loss, fit) for loss, fit in losses.items())
        if (clip := next((each for each in clips if each is not None), None)) is not None:
            self.clip, self.clip_steps = self.clip.joined(clip), self.clip_steps + 1

    def _add_logprobs(self, step: Step) -> None:
        """Compare the log-probabilities of sampler, trainer and old before the first optimizer step."""
        sampler_N, old_N = (step.stream(name) for name in ("sampler_logprob", "old_logprob"))
        trainer_N = step.at_first_optimizer_step("new_logprob")
        if (apart := _apart(step, sampler_N, trainer_N)) is not None:
            self.apart.append((step.step, float(apart.median())))
        equal = set[str]()
        for name, other_N in (("the sampler's", sampler_N), ("the trainer's first forward", trainer_N)):
            if (apart := _apart(step, old_N, other_N)) is not None and float(apart.max()) <= ROUNDING:
                equal.add(name)
        if _apart(step, old_N, old_N) is not None:
            self.old = equal if self.old is None else self.old & equal

    def lines(self) -> Iterator[str]:
        """Yield a line for each formula that steps can tell: advantage, loss, clip, old, noise."""
        if self.advantages is not None:
            text = str(min(self.advantages, key=_common)) if self.advantages else NONE
            yield f"advantage in the rows: {text} ({with_count(self.advantage_steps, 'step')})"
        if self.losses is not None:
            plain = {loss.aggregation for loss in self.losses if not loss.kl}  # a KL term that nothing needs
            several = [loss for loss in self.losses if not loss.kl or loss.aggregation not in plain]
            texts = [loss_text(loss, self.losses[loss]) for loss in several]
            also = f" (here the same: {'; '.join(texts[1:])})" if texts[1:] else ""
            text = texts[0] + also if texts else NO_LOSS
            yield f"loss in the rows: {text} ({with_count(self.loss_steps, 'step')})"
        if self.clip_steps:
            yield f"clip in the rows: {self.clip.text} ({with_count(self.clip_steps, 'step')})"
        if self.old is not None:
            yield f"old log-probabilities in the rows: {' and '.join(sorted(self.old)) or 'another forward'}"
        if self.apart:
            (at, least), (worst, most) = (f(self.apart, key=lambda each: each[1]) for f in (min, max))
            span = f"{least:.2g} (step {at + 1}) to {most:.2g} nats (step {worst + 1})"
            found = f"{most:.2g} nats in each step" if f"{least:.2g}" == f"{most:.2g}" else span
            yield f"sampler and trainer before the first optimizer step: a median difference of {found}"


def _apart(step: Step, one_N: Tensor, other_N: Tensor) -> Tensor | None:
    """Return the differences at sampled tokens, [n] nats; None without one."""
    apart_n = (one_N - other_N)[step.sampled].abs()
    apart_n = apart_n[~apart_n.isnan()]
    return apart_n if len(apart_n) else None


def _common(formula: Formula) -> tuple[bool, bool, int]:
    """Return the order of formulas that rows do not tell apart: those that are meant first."""
    return bool(formula.grouping), formula.negated, EPSILONS.index(formula.eps) if formula.eps else 0
