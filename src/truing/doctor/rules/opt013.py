"""OPT013: Every step is skipped.

What: In step after step, a gate of the recipe skips the whole step: the policy samples rollouts,
graders score them, a gradient may exist, and no weight changes.

Why it is silent: Each time the gate acts as declared. The policy does not change, and so neither does the
gate's metric: beyond `kl.cap` the same policy samples the next batch, at the same distance from the same
reference. Rewards and lengths stay level.

How it is measured: The rule counts steps in a row without any optimizer step. It is proven after twenty of
them, or at the end of a stage with half or more, and at least five.

Healthy look-alikes: One skipped batch, or a few: the next is another sample. A stage whose later inner
steps are skipped, while its first ones are made.

Fix: Beyond `kl.cap`, lower the learning rate and start again, raise the cap or `kl.coef`, sync the
reference (`reference.sync_every`), or use `kl.cap_action = "rollback"` with a guard. Below
`gates.min_trained_tokens` or `gates.min_trained_share`, find out why so little is trained (MSK009, LEN003)
or lower the gate.

References: docs/control.md, https://spinningup.openai.com/en/latest/algorithms/ppo.html
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

SUSPECTED, SURE = 5, 20
"""Steps in a row for a claim, and for proof."""


def _is_skipped(numbers: Mapping[str, float]) -> bool:
    """Return whether a gate skipped every optimizer step: then there is no norm."""
    return numbers.get("gate/held_back", 0.0) > 0 and "grad/norm" not in numbers


def judge(step: Step) -> Iterator[Claim]:
    """Claim a row of skipped steps: without a change the next one is skipped too."""
    held, count = skipped_steps(step), step.steps_before + 1
    if held < SUSPECTED:
        return
    half = step.step + 1 == step.setup.steps and 2 * held >= count
    kl = step.metrics.get("kl_all/k3")
    reference = "" if kl is None else f"; the KL to the reference is {kl:.3g} nats per token"
    yield Claim(
        Verdict.PROVEN if held >= SURE or half else Verdict.SUSPECT,
        f"the last {held} of {count} steps were all skipped{reference}",
        got="no weight has changed since",
        expected="a gate that skips some batches, and passes others",
        specificity=4,
    )


def skipped_steps(step: Step) -> int:
    """Return the skipped steps in a row, this one included."""
    numbers = [step.metrics, *(each.metrics for each in reversed(step.latest))]
    return len(list(takewhile(_is_skipped, numbers)))


def _skipped(times: int, trained_before: int = 0) -> Step:
    """Return a skipped step after ``trained_before`` trained ones, the last of ``times`` skipped ones."""
    step = example_step(setup={"steps": 100})
    earlier = [past_step(i, grad_norm=1.0) for i in range(trained_before)]
    earlier += [past_step(i, gate_held_back=1.0) for i in range(trained_before, trained_before + times - 1)]
    still = {"before": "a", "after": "a", "next": "a"}
    last = changed_step(step, past=earlier, facts={"weights": still}, metrics={"gate/held_back": 1.0})
    numbers = {name: value for name, value in last.metrics.items() if name != "grad/norm"}
    return replace(last, step=len(earlier), metrics=numbers)


def example() -> Step:
    """The policy stays beyond the cap."""
    return _skipped(20, trained_before=3)


def now_and_then() -> Step:
    """Three batches in a row."""
    return _skipped(3, trained_before=9)


RULE = Rule(
    code="OPT013",
    name="every-step-held-back",
    kind="S",
    needs=("policy_mask",),
    taints=("policy",),
    applies=lambda step: "gate/held_back" in step.metrics,
    judge=judge,
    example=example,
    lookalikes=(now_and_then,),
)
