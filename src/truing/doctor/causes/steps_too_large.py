"""Optimizer steps are too large: the policy loses what it could.

Found: The reward or an evaluation fell, and the policy moved far: away from its reference, to another
entropy, beyond the clip, or by a gradient that grew tenfold.
The entropy fell to a fifth, and the reward did not rise.
Open: The reward fell without such a sign, or goes down, or the policy is far away without a fall.
Excluded: The reward rises, or there is none of these.
"""

import math
import statistics

from truing.doctor.causes import (
    critic_useless,
    demonstrations_unpaid,
    entropy_bonus,
    no_baseline,
    penalty_outweighs,
    too_many_epochs,
    weight_decay,
)
from truing.doctor.causes.cause import Answer, Cause, State
from truing.doctor.causes.clip_narrow import narrow_clip
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import (
    STEPS,
    example_history,
    example_log,
    falling,
    rising,
)
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import MIN_STEPS, RECENT_STEPS
from truing.doctor.example_steps import example_evaluation
from truing.doctor.rules.len001 import MOSTLY, right_by_now
from truing.doctor.verdict import Verdict

FAR, CLIPPED = 0.5, 0.2
"""Nats per token from the reference, and a share of clipped tokens, that small steps do not reach."""

ENTROPY = 2.0
"""The factor by which the entropy changed."""

COLLAPSE, LOW = 5.0, 0.02
"""The factor by which it fell, and nats per token that healthy runs end at."""

LOWER = 0.9
"""Of the first entropy."""

OFF = 0.05
"""Nats per token that the policy moves within a step, of a log: the mean of old − new log-probabilities."""

NORM = 10.0
"""The factor by which the gradient norm grew."""


FIRST = tuple(
    each.CAUSE
    for each in (
        *(entropy_bonus, weight_decay, critic_useless, penalty_outweighs, demonstrations_unpaid),
        *(no_baseline, too_many_epochs),
    )
)
"""Causes of a policy that goes elsewhere at any rate."""


def far(history: History) -> list[str]:
    """Return what small optimizer steps do not reach, whatever the reward does."""
    distance, clipped, texts = history.after("kl_all/k3"), history.after("clip/clipped_share"), list[str]()
    if distance > FAR:
        texts.append(f"the policy is {distance:.2g} nats per token from its reference")
    if (kl := history.after("kl/any")) > FAR:  # of a log, by an unknown estimator
        first = next(row.metrics["kl/any"] for row in history.steps if "kl/any" in row.metrics)
        texts.append(f"the KL to the reference grew from {first:.2g} to {kl:.2g}")
    if clipped > CLIPPED and not narrow_clip(history):
        texts.append(f"{clipped:.0%} of tokens are clipped")
    if (moved := _within_a_step(history)) > OFF:
        said = f"the policy moves by {moved:.2g} nats per token within a step ({history.column('ratio/k1')})"
        share = history.late("clip/any_share")
        texts.append(said + (f", and {history.column('clip/any_share')} is {share:.2g}" if share > 0 else ""))
    return texts


def _within_a_step(history: History) -> float:
    """Return how far the policy moves from the one that sampled, by its log; NaN if unknown."""
    return abs(history.late("ratio/k1")) if history.run is None else math.nan


def signs(history: History) -> list[str]:
    """Return what shows that the policy moved, also what one that learns may show."""
    texts = far(history)
    known = history.entropy
    if known and not 1 / ENTROPY < known[-1] / max(known[0], 1e-9) < ENTROPY:
        texts.append(f"the entropy went from {known[0]:.2g} to {known[-1]:.2g} nats per token")
    return [*texts, *_grown(history)]


def _grown(history: History) -> list[str]:
    """Return that the gradient norm grew, if it did."""
    norms = [row.metrics["grad/norm"] for row in history.steps if "grad/norm" in row.metrics]
    if norms and norms[0] > 0 and max(norms) > NORM * norms[0]:
        return [f"the gradient norm grew from {norms[0]:.2g} to {max(norms):.2g}"]
    return []


def judge(history: History) -> Answer:
    """Return what fell, and how far the policy moved."""
    outcome, moved, collapse = history.outcome, signs(history), collapsed(history)
    if outcome.learns:
        return Answer("ruled out", next(outcome.lines()))
    if outcome.denied:
        return Answer("ruled out", outcome.trend.summary())
    if outcome.fault:
        return Answer("cannot tell", f"not before this is mended: {outcome.fault}")
    bonus, *others = (cause.answer(history) for cause in FIRST)
    for answer in (bonus, *others):
        if answer is not None and answer.state == "found":
            return Answer("cannot tell", f"not before this is mended: {answer.title}")
    unusual = [*far(history), *_grown(history)]
    if not outcome.fell and not outcome.down and not unusual and not collapse:
        return Answer("ruled out", _stays(history))
    because = "; ".join([f"learning rate {history.rate:.2g}", *moved])
    if outcome.down:
        because += f"; {outcome.trend.summary() if outcome.trend.down else ', '.join(outcome.lower)}"
    if outcome.fell and history.broke:
        because += f"; the reward fell after step {history.rewarded[history.broke - 1].step + 1}"
    surely = (outcome.fell and moved) or (collapse and not _may_have_converged(history))
    if surely and (bonus is None or bonus.state != "open"):
        return _answer(history, "found", because, max(outcome.lost, collapse))
    return _answer(history, "open", because, outcome.lost / 2 or 0.3)  # without a sign of its own


def _stays(history: History) -> str:
    """Return what did not fall, how the entropy changed, and how far the policy is, where this is known."""
    texts = ["neither reward nor evaluation fell" if history.outcome.gain else "the reward did not fall"]
    if known := history.entropy:
        lower = ", which is no collapse" if known[-1] < LOWER * known[0] else ""
        texts.append(f"the entropy went from {known[0]:.2g} to {known[-1]:.2g} nats per token{lower}")
    if math.isfinite(distance := history.after("kl_all/k3")):
        texts.append(f"the policy is {distance:.2g} nats per token from its reference")
    return "; ".join(texts)


def _answer(history: History, state: State, because: str, explains: float) -> Answer:
    """Return the answer with its test: a tenth of the rate, from before the fall if there is one."""
    if _within_a_step(history) > OFF:
        fix = train_again(history, {}, "with one epoch and fewer minibatches of each step's rollouts")
        outcomes = "if the figure falls and the reward holds, too many optimizer steps were the cause"
        title = "optimizer steps are too large, or too many on the same rollouts"
        return Answer(state, because, explains, fix, outcomes, title)
    smaller: dict[str, object] = {f"{history.stage}.learning_rate": history.rate / 10}
    if not history.outcome.fell:
        fix = train_again(history, smaller, "at a tenth of the learning rate")
        return Answer(state, because, explains, fix, "if the reward rises, the rate was the cause")
    fix = train_again(history, smaller, "from before the fall, at a tenth of the learning rate")
    outcomes = (
        "if the reward does not fall, the rate was the cause; if it does, read the rollouts at the fall"
    )
    return Answer(state, because, explains, fix, outcomes)


def collapsed(history: History) -> float:
    """Return the share of the entropy that was lost without a rise of the reward; 0 unless most of it."""
    known = history.entropy
    if len(known) < MIN_STEPS or history.trend.rises or known[0] < LOW * COLLAPSE:
        return 0.0
    last = statistics.median(known[-RECENT_STEPS:])
    return 1 - last / known[0] if last * COLLAPSE < known[0] else 0.0


def _may_have_converged(history: History) -> bool:
    """Return whether most answers are right, or the rule of the entropy cannot tell a collapse from that."""
    return right_by_now([row.metrics for row in history.steps]) >= MOSTLY or any(
        finding.claim.verdict is Verdict.CANNOT_TELL
        for each in history.diagnosis.results()
        if each.code == "LEN002"
        for finding in each.findings
    )


def off_policy() -> History:
    """The reward falls steadily, and the policy moves by 0.2 nats per token within each step."""
    rewards = [0.5 - 0.01 * i + 0.004 * (i % 3) for i in range(STEPS)]
    return example_log({"reward/mean": rewards, "ratio/k1": 0.2, "clip/any_share": 0.4})


def lower() -> History:
    """The reward goes down by a fifth, which is no sudden fall."""
    return example_log({"reward/mean": rising(0.6, 0.5)})


def fallen() -> History:
    """The reward falls within a step, and the entropy with it."""
    entropy = [0.7] * 8 + [0.01] * (STEPS - 8)
    return example_history({"reward/mean": falling(), "entropy/sampled": entropy, "lr": 3e-2})


def certain() -> History:
    """The entropy collapses within some steps, and the reward stays low."""
    return example_history({"entropy/sampled": [0.7 * 0.6**i + 0.02 for i in range(STEPS)]})


def sharper() -> History:
    """The entropy halves, and nothing falls."""
    return example_history({"entropy/sampled": [0.7 * 0.95**i for i in range(STEPS)]})


def worse() -> History:
    """The evaluation gets worse, after a step at which the gradient norm grew a hundredfold."""
    before, after = (
        example_evaluation("base", [1.0] * 40 + [0.0] * 40),
        example_evaluation("after_grpo", [0.0] * 80),
    )
    return example_history({"grad/norm": [1.0] + [100.0] * (STEPS - 1)}, evaluations=(before, after))


CAUSE = Cause(
    title="optimizer steps are too large",
    judge=judge,
    rules=("RWD010", "RWD012", "KLD003", "LEN002", "LEN006", "ADV004"),
    found=(fallen, certain, worse, off_policy, lower),
    excluded=(lambda: example_history({"reward/mean": rising()}), sharper, example_log),
)
