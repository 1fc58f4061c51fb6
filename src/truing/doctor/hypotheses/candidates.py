"""What may keep a reward down, one question each: found, open with its test, or ruled out."""

import math
import shlex
from collections.abc import Iterator

from scipy import stats

from truing.analysis.estimate import read_estimate
from truing.doctor.hypotheses.hypothesis import Hypothesis, State
from truing.doctor.hypotheses.reward_trend import ENOUGH
from truing.doctor.hypotheses.run_history import Story
from truing.doctor.hypotheses.test_cost import (
    again,
    check_minutes,
    command,
    evaluation_minutes,
    training_minutes,
)
from truing.doctor.report.repeated_findings import folded
from truing.doctor.verdict import FINDINGS, Verdict
from truing.utils.format import counted


def bugs(story: Story) -> Iterator[Hypothesis]:
    """What rules found, and what they ruled out."""
    results = story.diagnosis.results()
    found = [f for each in results for f in each.findings if f.claim.verdict in FINDINGS]
    for each in folded(found, story.diagnosis.suppressed):
        shown = each.shown
        yield Hypothesis(
            f"{shown.claim.verdict} {shown.code} {shown.name}",
            "found",
            f"{shown.claim.what} ({shown.where}{each.again})",
            f"truing explain {shown.code}",
            code=shown.code,
        )
    clean = [each for each in results if each.verdict is Verdict.CLEAN]
    if clean:
        suspected = {each.code[:3] for each in found}
        families = sorted({each.code[:3] for each in clean} - suspected)
        clean = [each for each in clean if each.code[:3] in families]
        codes = ", ".join(each.code for each in clean)
        yield Hypothesis(
            f"a bug in {', '.join(families)}",
            "ruled out",
            f"{counted(len(clean), 'rule is', 'rules are')} clean over up to"
            f" {counted(max(each.steps for each in clean), 'update')}: {codes}",
        )
    unchecked = [each for each in results if each.verdict is Verdict.NOT_CHECKED]
    if unchecked:
        needs = "; ".join(sorted({need for each in unchecked for need in each.missing}))
        codes = ", ".join(each.code for each in unchecked)
        yield Hypothesis(
            "a bug that no rule could look for",
            "open",
            f"{codes} {'lacks' if len(unchecked) == 1 else 'lack'} {needs}",
            command(story, "check"),
            check_minutes(story),
        )


def evaluation(story: Story) -> Iterator[Hypothesis]:
    """Whether the evaluation could see a gain at all."""
    estimates = [read_estimate(each) for each in story.evaluations if each.get("estimate")]
    if len(estimates) < 2 or not estimates[-1].tasks:
        return
    now, tasks = estimates[-1], estimates[-1].tasks
    # where all answers earned the same, an interval may be of no width or missing: 3 ÷ n may still be true
    half = (now.high - now.low) / 2 if now.high > now.low else 3 / tasks
    needed = math.ceil(tasks * (half / 0.04) ** 2)
    unseen = f"a gain below {half * math.sqrt(2):.2f} is not seen"
    told = f"{now.mean:.3f} ± {half:.3f} over {counted(tasks, 'task')}: {unseen}"
    if story.blocked:
        told += f"; there is none to see: {story.blocked[0].name}"
    if half <= 0.04 or story.blocked:
        yield Hypothesis("the evaluation is too small", "ruled out", told)
        return
    # an environment may have no more tasks, and what it has is only known where the recipe says so
    given = story.recipe.env.get("eval")
    there = min(needed, given) if isinstance(given, int) else 0
    more = "" if there == needed else f"; about {needed} would be needed"
    more += f", and env.eval is {there}" if more and there else ""
    larger = there > story.recipe.eval.tasks
    yield Hypothesis(
        "the evaluation is too small",
        "open",
        told + more,
        shlex.join(["truing", "eval", str(story.run), f"eval.tasks={there}"]) if larger else "",
        evaluation_minutes(story, there) if larger else None,
    )


def lengths(story: Story) -> Iterator[Hypothesis]:
    """Whether the reward favours short answers, and whether many are cut."""
    graded = {
        row.sample.rollout_id: row
        for row in story.rows
        # what was cut is as long as the limit, and mostly wrong: that is no taste of the reward's
        if not math.isnan(row.sample.reward) and not row.sample.truncated
    }
    pairs = [(sum(t.end - t.start for t in row.sample.turns), row.sample.reward) for row in graded.values()]
    if len({length for length, _ in pairs}) > 1 and len({reward for _, reward in pairs}) > 1:
        rank = stats.spearmanr([length for length, _ in pairs], [reward for _, reward in pairs])
        rho, chance = float(rank.statistic), float(rank.pvalue)
        told = (
            f"rank correlation of length and reward {rho:+.2f}, {counted(len(pairs), 'whole attempt')}"
            f" (chance {chance:.1g})"
        )
        favours = rho < -0.3 and chance < 1e-3
        yield Hypothesis(
            "the reward favours short answers",
            "open" if favours else "ruled out",
            told + "; are short answers as good?" * favours,
            shlex.join(["truing", "tokens", str(story.run)]) if favours else "",
            0.0 if favours else None,  # trains nothing
        )
    yield from _cut(story)
    banned = story.recipe.sampling.min_new_tokens
    yield Hypothesis(
        "the stop token is banned",
        "open" if banned else "ruled out",
        f"sampling.min_new_tokens = {banned}",
        again(story, "sampling.min_new_tokens=0") if banned else "",
        training_minutes(story) if banned else None,
        ("sampling.min_new_tokens=0",) if banned else (),
    )


MANY = 0.3
"""Of the attempts."""


def _cut(story: Story) -> Iterator[Hypothesis]:
    """Whether the limit of tokens keeps answers from their end, and did so before the reward fell."""
    cut, before = story.last("truncated/share"), story.before("truncated/share")
    limit = story.recipe.sampling.max_new_tokens
    told = f"{cut:.0%} of attempts are cut at {counted(limit, 'token')}"
    if cut <= MANY:
        yield Hypothesis("answers are cut", "ruled out", told)
    elif before <= MANY:
        yield Hypothesis("answers are cut", "ruled out", f"{told}; {before:.0%} were before the reward fell")
    elif cut > MANY:
        longer = f"sampling.max_new_tokens={2 * limit}"
        state: State = "open" if story.course.learns else "found"
        minutes = training_minutes(story) if story.course.learns else None
        yield Hypothesis("answers are cut", state, told, again(story, longer), minutes, (longer,))


def supervised(story: Story) -> Iterator[Hypothesis]:
    """Whether supervised fine-tuning ended too early."""
    rows = [row for row in story.recorded if row.stage == "sft"]
    losses = [row.metrics["loss/supervised"] for row in rows if "loss/supervised" in row.metrics]
    if len(losses) < 8:
        return
    quarter = len(losses) // 4
    before, after = (sum(part) / quarter for part in (losses[-2 * quarter : -quarter], losses[-quarter:]))
    falling = after < 0.9 * before and not (story.course.learns or story.blocked)
    yield Hypothesis(
        "supervised fine-tuning was too short",
        "open" if falling else "ruled out",
        f"its loss was {before:.3g}, and {after:.3g} over the last quarter of {len(losses)} updates",
        again(story, f"sft.steps={2 * len(rows)}") if falling else "",
        training_minutes(story, {"sft": 2 * len(rows)}) if falling else None,
        (f"sft.steps={2 * len(rows)}",) if falling else (),
    )


def families(story: Story) -> Iterator[Hypothesis]:
    """Whether all kinds of tasks are in the batch."""
    count: dict[str, int] = {}
    for row in story.rows:
        if not math.isnan(row.sample.reward):
            count[row.sample.family] = count.get(row.sample.family, 0) + 1
    if len(count) < 2:
        return
    total = sum(count.values())
    told = ", ".join(f"{name} {number / total:.0%}" for name, number in sorted(count.items()))
    rare = min(count.values()) / total < 0.1
    yield Hypothesis("a kind of task is missing", "found" if rare else "ruled out", told)


def world(story: Story) -> Iterator[Hypothesis]:
    """Whether worlds, judges and tools are alive."""
    failed = story.last("ended/error")
    if not math.isnan(failed):
        yield Hypothesis(
            "the judge or the environment fails",
            "found" if failed > 0.1 else "ruled out",
            f"{failed:.0%} of attempts failed",
            command(story, "check", "--static") if failed > 0.1 else "",
        )
    valid = story.last("tools/valid_share")
    if not math.isnan(valid):
        yield Hypothesis(
            "tools are called wrongly",
            "found" if valid < 0.5 else "ruled out",
            f"{valid:.0%} of calls are valid",
        )


CERTAIN = 0.01
"""Nats per token: below it nothing is left to choose, so that no rate changes anything."""


def size(story: Story) -> Iterator[Hypothesis]:
    """Whether updates are too small to be seen, or so large that they undo each other."""
    course, rate = story.course, story.recipe.stage(story.stage).learning_rate
    steps = min(20, len(story.steps))
    if course.fell:
        yield _trained(story, "updates are too large", f"the reward fell {course.fell}", rate / 10, steps)
    if excluded := _no_matter_of_size(story):
        yield Hypothesis("updates are too small", "ruled out", excluded)
    elif course.updates < ENOUGH:
        longer = f"{story.stage}.steps={4 * ENOUGH}"
        yield Hypothesis(
            "there were too few updates to tell",
            "open",
            f"{counted(course.updates, 'update')}: a trend shows over {ENOUGH} or more",
            again(story, longer),
            training_minutes(story, {story.stage: 4 * ENOUGH}),
            (longer,),
        )
    else:
        because = f"learning rate {rate:g} over {counted(len(story.steps), 'update')}, reward from"
        because += f" {course.first:.3f} to {course.last:.3f}"
        yield _trained(story, "updates are too small", because, 10 * rate, steps)


def _no_matter_of_size(story: Story) -> str:
    """What on record says that larger updates would show nothing; "" where nothing does."""
    course, entropy = story.course, story.last("entropy/drawn")
    tied = story.last("group/zero_variance_share")
    if course.learns or course.fell:
        return course.told()
    if story.blocked:
        return f"no update moved a weight: {story.blocked[0].name}"
    if tied >= 0.95:
        return f"{tied:.0%} of groups have no advantage: a larger rate multiplies nothing"
    if entropy < CERTAIN:
        return f"the policy is certain of its tokens ({entropy:.2g} nats): no attempt differs from another"
    return ""


def _trained(story: Story, name: str, because: str, rate: float, steps: int) -> Hypothesis:
    """Open, with the test to train at another rate."""
    changed = f"{story.stage}.learning_rate={rate:g}"
    return Hypothesis(
        name,
        "open",
        because,
        again(story, changed, f"{story.stage}.steps={steps}"),
        training_minutes(story, {story.stage: steps}),
        (changed,),
    )
