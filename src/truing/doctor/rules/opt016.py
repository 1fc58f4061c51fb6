"""OPT016: The loss of demonstrations is exactly 0, or jumped and stays high.

What: The mean negative log-probability of demonstrations is exactly 0 over the last five steps, without
having come near 0 before. Or it rose by two nats or more and stays there: near ln V, for a vocabulary of V
tokens, the model guesses.

Why it is silent: A loss of 0 looks like success, and the run ends normally. The gradient norm may be NaN, or
that of another term. After a jump loss and norm are constant, as at the end of a good run.

How it is measured: The losses of the stage. A mean of probabilities below 1 is never exactly 0; a log that
rounds to four digits shows 0 only after losses below 0.05. A jump is the mean of the last five losses, at
least two nats and twice above the best mean of five before it, all of the five above half of the jump.

Healthy look-alikes: Demonstrations that the model has memorized: the loss falls to 0 through small values. A
spike that the next steps repair. A loss that rises slowly on new data.

Fix: For 0: print the labels of a sample (all −100: the mask or the template hides the answer), and the loss
before it is logged. transformers logs 0 in place of NaN (`logging_nan_inf_filter`), so the cause is that of
a NaN: float16 or bfloat16 overflow, a sample without a label, a damaged model file. For a jump: return to a
checkpoint from before it, with a smaller learning rate, a warm-up or a clip of the gradient.

References: https://arxiv.org/abs/1710.03740, https://arxiv.org/abs/2204.02311
"""

from collections.abc import Iterator, Sequence

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.levels import moving_means
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

LAST = 5
"""Steps in a mean."""

MEMORIZED = 0.05
"""Nats per token: from below it a loss may reach 0 in four digits."""

JUMP = 2.0
"""Nats per token, and times the best."""

GUESS = (9.5, 13.0)
"""Nats per token: ln V of vocabularies from 13,000 to 440,000 tokens."""

LOSSES = ("loss/supervised", "loss/total")


def judge(step: Step) -> Iterator[Claim]:
    """Claim a loss of 0 that did not shrink, or a jump that lasts."""
    known = step.known(*LOSSES)
    numbers, losses = [*known], [*known.values()]
    if len(losses) < LAST:
        yield Claim(Verdict.NOT_CHECKED, f"the loss of {LAST} steps")
    elif not any(losses[-LAST:]):
        yield from _zero(numbers, losses)
    elif len(losses) >= 2 * LAST:
        yield from _jump(numbers, losses)


def _zero(numbers: Sequence[int], losses: Sequence[float]) -> Iterator[Claim]:
    """Claim a loss that is exactly 0, and was not small before."""
    start = next((i for i in range(len(losses), 0, -1) if losses[i - 1]), 0)
    if start and abs(losses[start - 1]) < MEMORIZED:
        return
    before = f", after {losses[start - 1]:.4g}" if start else ""
    yield Claim(
        Verdict.SUSPECT,
        f"the loss is exactly 0 from step {numbers[start]} on{before}: no token is trained, or the"
        " loss is NaN and is logged as 0",
        got=f"0 in {with_count(len(losses) - start, 'record')}",
        expected="a loss above 0: no model gives every token a probability of 1",
        specificity=2,
    )


def _jump(numbers: Sequence[int], losses: Sequence[float]) -> Iterator[Claim]:
    """Claim a loss that rose by two nats and twofold, and stays."""
    means = moving_means(losses, LAST)
    best, now = min(means[:-LAST]), means[-1]
    if now - best < JUMP or now < JUMP * best or min(losses[-LAST:]) < (best + now) / 2:
        return
    low = [i for i, loss in enumerate(losses) if loss < (best + now) / 2]
    guess = GUESS[0] <= now <= GUESS[1]
    yield Claim(
        Verdict.SUSPECT,
        f"the loss jumped from {best:.3g} to {now:.3g} at step {numbers[low[-1] + 1]}, and stays"
        " there" + (": about that of a model that guesses among all tokens" if guess else ""),
        got=f"{now:.3g} over steps {numbers[-LAST]} to {numbers[-1]}",
        expected=f"about {best:.3g}"
        + ("; ln V is 10.4 for 32,000 tokens, and 11.9 for 151,936" if guess else ""),
        specificity=1.5,
    )


def _losses(*losses: float) -> Step:
    """Return the last step of supervised fine-tuning with these losses."""
    past = [past_step(number, loss_total=loss) for number, loss in enumerate(losses[:-1])]
    return changed_step(example_step(setup={"algo": "sft"}), past=past, metrics={"loss/total": losses[-1]})


def example() -> Step:
    """The model breaks, and guesses from then on."""
    return _losses(*(1.5 - 0.02 * i for i in range(15)), *(11.2,) * 10)


def memorized() -> Step:
    """Few demonstrations, many epochs: the loss falls to 0 in four digits."""
    return _losses(*(2 * 0.6**i for i in range(20)), *(0.0,) * 8)


def spike() -> Step:
    """One bad batch, and a recovery."""
    return _losses(*(1.5,) * 12, 9.0, 6.0, 3.0, *(1.6,) * 5)


RULE = Rule(
    code="OPT016",
    name="supervised-loss",
    kind="S",
    needs=("metrics.loss/supervised | metrics.loss/total",),
    taints=("sft",),
    applies=lambda step: step.setup.algo in ("sft", "rft"),
    judges_trend=True,
    judge=judge,
    example=example,
    lookalikes=(memorized, spike),
)
