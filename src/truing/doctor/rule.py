"""The definition of a rule."""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from truing.doctor.evidence import Step, is_input
from truing.doctor.verdict import Claim
from truing.errors import InvalidValueError

Kind = Literal["E", "C", "M", "X", "S", "I"]

KINDS: dict[Kind, str] = {
    "E": "an exact invariant of the record",
    "C": "a static requirement",
    "M": "a closed form, or an invariance",
    "X": "a statistic with a known null",
    "S": "a statistic",
    "I": "needs an experiment",
}

Taint = Literal["sft", "policy", "rewards", "critic", "reference", "metrics"]

TAINTS: dict[Taint, str] = {
    "sft": "the weights after supervised fine-tuning",
    "policy": "the policy's weights from that step on",
    "rewards": "rewards, and everything learned from them",
    "critic": "the critic",
    "reference": "every KL to the reference",
    "metrics": "reported numbers; the weights are right",
}

SECTIONS = ("What", "Why it is silent", "How it is measured", "Healthy look-alikes", "Fix", "References")


def is_sampled(step: Step) -> bool:
    """Return whether a policy sampled the samples: rules on sampling do not apply to demonstrations."""
    return "sampler_logprob" in step.tokens or step.setup.algo not in ("sft", "rft")


def is_grouped(step: Step) -> bool:
    """Return whether rollouts are compared within groups, or may be."""
    known = step.setup.advantage in ("group", "group_population", "batch", "none", "loo", None)
    return known and step.setup.algo in ("grpo", "rloo", None)


def compares_rewards_only(step: Step) -> bool:
    """Return whether nothing but the shaped rewards of whole rollouts decides their advantages, or may be."""
    return step.setup.kl_where != "reward" and step.setup.advantage_per != "turn"


def has_penalties(step: Step) -> bool:
    """Return whether rewards are lowered for truncated or long answers."""
    return step.setup.truncated == "penalize" or bool(step.setup.overlong_tokens)


def has_policy_loss(step: Step) -> bool:
    """Return whether there is a policy loss, or may be."""
    return step.setup.algo not in ("sft", "rft")


def has_reference(step: Step) -> bool:
    """Return whether a reference is scored, or may be."""
    return "ref_logprob" in step.tokens or (has_policy_loss(step) and step.setup.kl_coef != 0)


def has_critic(step: Step) -> bool:
    """Return whether a critic is trained, or may be: a skipped step has no norm."""
    if "value" in step.tokens:
        return "grad/norm" in step.metrics
    return step.setup.algo in ("ppo", None)


def has_gradient(step: Step) -> bool:
    """Return whether there is a gradient, or may be: a step that Truing skips has no norm."""
    skipped = step.setup.trainer == "truing" and "grad/norm" not in step.metrics
    return "token_gradient" not in step.tokens or not skipped


def always(step: Step) -> bool:
    """Return True: the rule applies to every stage."""
    return True


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule. Its page is the docstring of its module."""

    code: str
    name: str  # a few words, joined by dashes
    kind: Kind
    needs: tuple[str, ...]  # of INPUTS
    taints: tuple[Taint, ...]
    judge: Callable[[Step], Iterable[Claim]]
    """Returns what is wrong with a step. Where much is computed, a ``measure`` of the module does it without
    thresholds, and ``judge`` has all of them."""
    example: Callable[[], Step]
    """Returns a step on which the rule fires, and no other rule is more specific."""
    lookalikes: tuple[Callable[[], Step], ...] = ()
    """Return healthy steps that resemble the fault; the rule must be silent on each."""
    applies: Callable[[Step], bool] = always
    """Returns whether the rule applies to a step."""
    judges_trend: bool = False
    """Whether it judges the trend of a stage: only claims that hold at its last step are findings."""

    def __post_init__(self) -> None:
        unknown = [need for need in self.needs if not is_input(need)]
        if unknown:
            raise InvalidValueError(
                f"{self.code} needs what no step has",
                got=unknown,
                expected="a stream, setup.…, sample.…, facts.… or metrics.…",
            )

    @property
    def module(self) -> ModuleType:
        """Return the module of the rule."""
        module = inspect.getmodule(self.example)
        assert module is not None
        return module

    @property
    def title(self) -> str:
        """Return the first line of its page."""
        return (self.module.__doc__ or "").strip().splitlines()[0].partition(": ")[2]

    def section(self, name: str) -> str:
        """Return a section of its page."""
        text = inspect.cleandoc(self.module.__doc__ or "")
        pattern = rf"^{re.escape(name)}: (.*?)(?=^(?:{'|'.join(SECTIONS)}): |\Z)"
        match = re.search(pattern, text, re.DOTALL | re.MULTILINE)
        return " ".join(match[1].split()) if match else ""
