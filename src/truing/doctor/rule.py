"""What a rule is. ``measure`` holds no threshold, and ``judge`` nothing else."""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from truing.doctor.evidence import Step
from truing.doctor.verdict import Claim

Kind = Literal["E", "C", "M", "X", "S", "I"]

KINDS: dict[Kind, str] = {
    "E": "an exact invariant of the record",
    "C": "a static contract",
    "M": "a closed form, or what must not change when something else does",
    "X": "a statistic with a known null",
    "S": "a statistic",
    "I": "needs an experiment",
}

Taint = Literal["sft", "policy", "rewards", "critic", "reference", "metrics"]

TAINTS: dict[Taint, str] = {
    "sft": "the weights that supervised fine-tuning left",
    "policy": "the policy's weights from that update on",
    "rewards": "rewards, and all that was learned from them",
    "critic": "the critic",
    "reference": "every KL to the reference",
    "metrics": "numbers that are shown; the weights are as they should be",
}

SECTIONS = ("What", "Why it is silent", "How it is measured", "Healthy look-alikes", "Fix", "References")


def is_sampled(step: Step) -> bool:
    """Whether a policy drew the rows: no rule on sampling says anything of demonstrations."""
    return "sampler_logprob" in step.tokens or step.setup.algo not in ("sft", "rft")


def is_grouped(step: Step) -> bool:
    """Whether attempts are compared with others of their group, as far as is known."""
    known = step.setup.advantage in ("group", "batch", "none", "loo", None)
    return known and step.setup.algo in ("grpo", "rloo", None)


def has_policy_loss(step: Step) -> bool:
    """Whether there is a policy loss, as far as is known."""
    return step.setup.algo not in ("sft", "rft")


def has_reference(step: Step) -> bool:
    """Whether a reference is scored, as far as is known."""
    return "ref_logprob" in step.tokens or (has_policy_loss(step) and step.setup.kl_coef != 0)


def has_critic(step: Step) -> bool:
    """Whether a critic was trained, as far as is known: an update that was not made has no norm."""
    if "value" in step.tokens:
        return "grad/norm" in step.numbers
    return step.setup.algo in ("ppo", None)


def has_gradient(step: Step) -> bool:
    """Whether there was a gradient, as far as is known: an update that was not made has no norm."""
    return "pull" not in step.tokens or "grad/norm" in step.numbers


def always(step: Step) -> bool:
    """Whatever the stage."""
    return True


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. Its page is the docstring of its module."""

    code: str
    name: str  # a few words, with dashes
    kind: Kind
    needs: tuple[str, ...]  # of INPUTS
    taints: tuple[Taint, ...]
    measure: Callable[[Step], Any]
    """Numbers and places; no opinion."""
    judge: Callable[[Any], Iterable[Claim]]
    """What the numbers mean."""
    example: Callable[[], Step]
    """A step on which it fires, and no other rule names the cause better."""
    lookalikes: tuple[Callable[[], Step], ...] = ()
    """Healthy steps that resemble the fault; it must be silent on each."""
    applies: Callable[[Step], bool] = always
    """Where it says anything at all."""
    judges_trend: bool = False
    """Whether it judges the course of a stage: what no longer holds at its last update is not told."""

    @property
    def module(self) -> ModuleType:
        """Where it is written."""
        found = inspect.getmodule(self.example)
        assert found is not None
        return found

    @property
    def title(self) -> str:
        """The first line of its page."""
        return (self.module.__doc__ or "").strip().splitlines()[0].partition(": ")[2]

    def section(self, name: str) -> str:
        """A section of its page."""
        text = inspect.cleandoc(self.module.__doc__ or "")
        pattern = rf"^{re.escape(name)}: (.*?)(?=^(?:{'|'.join(SECTIONS)}): |\Z)"
        found = re.search(pattern, text, re.DOTALL | re.MULTILINE)
        return " ".join(found[1].split()) if found else ""
