"""Possible causes of a low reward, one function each: found, open with its test, or ruled out."""

import math
import shlex
from collections.abc import Iterator

import scipy

from truing.analysis.estimate import read_estimate
from truing.analysis.evaluate_command import evaluate_command
from truing.doctor.hypotheses.hypothesis import Hypothesis, HypothesisState
from truing.doctor.hypotheses.reward_trend import MIN_UPDATES
from truing.doctor.hypotheses.run_history import RunHistory
from truing.doctor.hypotheses.test_cost import (
    check_minutes,
    command,
    evaluation_minutes,
    retrain_command,
    training_minutes,
)
from truing.doctor.report.repeated_findings import findings_by_rule
from truing.doctor.verdict import FINDING_VERDICTS, Verdict
from truing.types.status import Status
from truing.utils.format import with_count


def rule_findings(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield the findings of rules, and the bugs that they rule out."""
    results = history.diagnosis.results()
    findings = [f for each in results for f in each.findings if f.claim.verdict in FINDING_VERDICTS]
    for each in findings_by_rule(findings, history.diagnosis.suppressed):
        strongest = each.shown
        yield Hypothesis(
            f"{strongest.claim.verdict} {strongest.code} {strongest.name}",
            "found",
            f"{strongest.claim.what} ({strongest.where}{each.repeats})",
            f"truing explain {strongest.code}",
            code=strongest.code,
        )
    clean = [each for each in results if each.verdict is Verdict.CLEAN]
    if clean:
        suspected = {each.code[:3] for each in findings}
        families = sorted({each.code[:3] for each in clean} - suspected)
        clean = [each for each in clean if each.code[:3] in families]
        codes = ", ".join(each.code for each in clean)
        yield Hypothesis(
            f"a bug in {', '.join(families)}",
            "ruled out",
            f"{with_count(len(clean), 'rule is', 'rules are')} clean over up to"
            f" {with_count(max(each.steps for each in clean), 'step')}: {codes}",
        )
    unchecked = [each for each in results if each.verdict is Verdict.NOT_CHECKED]
    if unchecked:
        needs = "; ".join(sorted({need for each in unchecked for need in each.missing}))
        codes = ", ".join(each.code for each in unchecked)
        yield Hypothesis(
            "a bug outside the checked rules",
            "open",
            f"{codes} {'lacks' if len(unchecked) == 1 else 'lack'} {needs}",
            command(history, "check"),
            check_minutes(history),
        )


def evaluation(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether the evaluation can resolve a gain."""
    estimates = [read_estimate(each) for each in history.evaluations if each.get("estimate")]
    if len(estimates) < 2 or not estimates[-1].tasks:
        return
    now, tasks = estimates[-1], estimates[-1].tasks
    # with equal rewards an interval may have no width or be missing: 3 ÷ n may still be true
    half = (now.high - now.low) / 2 if now.high > now.low else 3 / tasks
    needed = math.ceil(tasks * (half / 0.04) ** 2)
    unseen = f"it cannot resolve a gain below {half * math.sqrt(2):.2f}"
    reason = f"{now.mean:.3f} ± {half:.3f} over {with_count(tasks, 'task')}: {unseen}"
    if history.blocked:
        reason += f"; no gain is possible: {history.blocked[0].name}"
    if half <= 0.04 or history.blocked:
        yield Hypothesis("the evaluation is too small", "ruled out", reason)
        return
    # an environment may have no more tasks, and only the recipe may state their number
    declared = history.recipe.env.get("eval")
    there = min(needed, declared) if isinstance(declared, int) else 0
    more = "" if there == needed else f"; about {needed} would be needed"
    more += f", and env.eval is {there}" if more and there else ""
    larger = there > history.eval_tasks
    yield Hypothesis(
        "the evaluation is too small",
        "open",
        reason + more,
        evaluate_command(history.run, f"eval.tasks={there}") if larger else "",
        evaluation_minutes(history, there) if larger else None,
    )


def lengths(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether the reward favours short answers, and whether the stop is banned."""
    graded: dict[str, tuple[int, float]] = {}  # tokens of its turns, and reward
    for sample in (each for each in history.samples if each.status != Status.TRUNCATED):
        # truncated answers are as long as the limit, and mostly wrong: that is not a preference of the reward
        if not math.isnan(sample.reward):
            length, _ = graded.get(sample.rollout_id, (0, 0.0))
            tokens = sum(turn.end - turn.start for turn in sample.turns)
            graded[sample.rollout_id] = length + tokens, sample.reward
    pairs = list(graded.values())
    if len({length for length, _ in pairs}) > 1 and len({reward for _, reward in pairs}) > 1:
        rank = scipy.stats.spearmanr([length for length, _ in pairs], [reward for _, reward in pairs])
        rho, chance = float(rank.statistic), float(rank.pvalue)
        reason = (
            f"rank correlation of length and reward {rho:+.2f}, {with_count(len(pairs), 'whole rollout')}"
            f" (p = {chance:.1g})"
        )
        favours = rho < -0.3 and chance < 1e-3
        yield Hypothesis(
            "the reward favours short answers",
            "open" if favours else "ruled out",
            reason + "; are short answers as good?" * favours,
            shlex.join(["truing", "tokens", str(history.run)]) if favours else "",
            0.0 if favours else None,  # trains nothing
        )
    yield from _cut(history)
    banned = history.recipe.sampling.min_new_tokens
    yield Hypothesis(
        "the stop token is banned",
        "open" if banned else "ruled out",
        f"sampling.min_new_tokens = {banned}",
        retrain_command(history, "sampling.min_new_tokens=0") if banned else "",
        training_minutes(history) if banned else None,
        ("sampling.min_new_tokens=0",) if banned else (),
    )


MANY = 0.3
"""Of the rollouts."""


def _cut(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether the limit of tokens cuts answers, and did so before the reward fell."""
    cut, before = history.last("truncated/share"), history.before("truncated/share")
    limit = history.recipe.sampling.max_new_tokens
    reason = f"{cut:.0%} of rollouts are cut at {with_count(limit, 'token')}"
    if cut <= MANY:
        yield Hypothesis("answers are cut", "ruled out", reason)
    elif before <= MANY:
        yield Hypothesis(
            "answers are cut", "ruled out", f"{reason}; {before:.0%} were before the reward fell"
        )
    elif cut > MANY:
        longer = f"sampling.max_new_tokens={2 * limit}"
        state: HypothesisState = "open" if history.reward_trend.learns else "found"
        minutes = training_minutes(history) if history.reward_trend.learns else None
        yield Hypothesis(
            "answers are cut", state, reason, retrain_command(history, longer), minutes, (longer,)
        )


def supervised(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether supervised fine-tuning ended too early."""
    rows = [row for row in history.recorded if row.stage == "sft"]
    losses = [row.metrics["loss/supervised"] for row in rows if "loss/supervised" in row.metrics]
    if len(losses) < 8:
        return
    quarter = len(losses) // 4
    before, after = (sum(part) / quarter for part in (losses[-2 * quarter : -quarter], losses[-quarter:]))
    falling = after < 0.9 * before and not (history.reward_trend.learns or history.blocked)
    yield Hypothesis(
        "supervised fine-tuning was too short",
        "open" if falling else "ruled out",
        f"its loss was {before:.3g}, and {after:.3g} over the last quarter of {len(losses)} steps",
        retrain_command(history, f"sft.steps={2 * len(rows)}") if falling else "",
        training_minutes(history, {"sft": 2 * len(rows)}) if falling else None,
        (f"sft.steps={2 * len(rows)}",) if falling else (),
    )


def families(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether all kinds of tasks are in the batch."""
    count: dict[str, int] = {}
    for sample in history.samples:
        if not math.isnan(sample.reward):
            count[sample.family] = count.get(sample.family, 0) + 1
    if len(count) < 2:
        return
    total = sum(count.values())
    shares = ", ".join(f"{name} {number / total:.0%}" for name, number in sorted(count.items()))
    rare = min(count.values()) / total < 0.1
    yield Hypothesis("a kind of task is missing", "found" if rare else "ruled out", shares)


def environment(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether environments, judges and tools work."""
    failed = history.last("ended/error")
    if not math.isnan(failed):
        yield Hypothesis(
            "the judge or the environment fails",
            "found" if failed > 0.1 else "ruled out",
            f"{failed:.0%} of rollouts failed",
            command(history, "check", "--static") if failed > 0.1 else "",
        )
    valid = history.last("tools/valid_share")
    if not math.isnan(valid):
        yield Hypothesis(
            "tools are called wrongly",
            "found" if valid < 0.5 else "ruled out",
            f"{valid:.0%} of calls are valid",
        )


MIN_ENTROPY = 0.01
"""Nats per token: below it the policy is certain, so that no rate changes anything."""


def update_size(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether optimizer steps are too small to show, or so large that they undo each other."""
    course, rate = history.reward_trend, history.recipe.stage(history.stage).learning_rate
    steps = min(20, len(history.steps))
    large = f"the reward fell {course.fell}" if course.fell else _signs_of_large_updates(history)
    if large:
        yield _other_learning_rate(history, "optimizer steps are too large", large, rate / 10, steps)
    if excluded := _size_excluded(history):
        yield Hypothesis("optimizer steps are too small", "ruled out", excluded)
    elif course.updates < MIN_UPDATES:
        longer = f"{history.stage}.steps={4 * MIN_UPDATES}"
        yield Hypothesis(
            "there were too few steps to tell",
            "open",
            f"{with_count(course.updates, 'step')}: a trend shows over {MIN_UPDATES} or more",
            retrain_command(history, longer),
            training_minutes(history, {history.stage: 4 * MIN_UPDATES}),
            (longer,),
        )
    else:
        because = f"learning rate {rate:g} over {with_count(len(history.steps), 'step')}, reward from"
        because += f" {course.first:.3f} to {course.last:.3f}"
        yield _other_learning_rate(history, "optimizer steps are too small", because, 10 * rate, steps)


FAR, CLIPPED = 0.5, 0.2
"""Nats per token from the reference, and a share of clipped tokens, that small optimizer steps do not
reach."""


def _signs_of_large_updates(history: RunHistory) -> str:
    """Return what shows that optimizer steps moved the policy far without a higher reward; "" without."""
    distance, clipped = history.last("kl_all/k3"), history.last("clip/clipped_share")
    if history.reward_trend.learns:
        return ""
    if distance > FAR:
        return f"the policy is {distance:.2g} nats per token from its reference"
    return f"{clipped:.0%} of tokens are clipped" if clipped > CLIPPED else ""


def _size_excluded(history: RunHistory) -> str:
    """Return the recorded reason why larger optimizer steps have no effect; "" without one."""
    course, entropy = history.reward_trend, history.last("entropy/sampled")
    tied = history.last("group/zero_variance_share")
    if course.rises or course.fell or course.fault:
        return course.summary()
    if large := _signs_of_large_updates(history):
        return large
    if history.blocked:
        return f"no step moved a weight: {history.blocked[0].name}"
    if tied >= 0.95:
        return f"{tied:.0%} of groups have no advantage: a larger rate has no effect"
    if entropy < MIN_ENTROPY:
        return f"the policy is certain of its tokens ({entropy:.2g} nats): all rollouts are alike"
    return ""


def _other_learning_rate(history: RunHistory, name: str, because: str, rate: float, steps: int) -> Hypothesis:
    """Return an open hypothesis, with a test at another rate."""
    changed = f"{history.stage}.learning_rate={rate:g}"
    return Hypothesis(
        name,
        "open",
        because,
        retrain_command(history, changed, f"{history.stage}.steps={steps}"),
        training_minutes(history, {history.stage: steps}),
        (changed,),
    )
