"""Why does the reward not go up? What was found, what is open and its test, and what was ruled out."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from truing.config import Recipe
from truing.doctor.examine import Diagnosis
from truing.doctor.folded import folded
from truing.doctor.rules import RULES
from truing.doctor.story import Story, trend
from truing.doctor.verdict import FINDINGS, Verdict
from truing.words import counted

State = Literal["found", "open", "ruled out"]


@dataclass(frozen=True)
class Hypothesis:
    """One answer to the question, and where it stands."""

    name: str
    state: State
    because: str  # with numbers
    test: str = ""  # what would settle it, as a command where there is one
    minutes: float = 0.0  # what that takes, roughly


def why(story: Story) -> list[Hypothesis]:
    """Every hypothesis: what was found first, then what is open by the minutes of its test."""
    made = [found for ask in ASKED for found in ask(story)]
    order = {"found": 0, "open": 1, "ruled out": 2}
    return sorted(made, key=lambda each: (order[each.state], each.minutes))


def discard(diagnosis: Diagnosis, recipe: Recipe) -> list[str]:
    """What a proven fault taints: checkpoints to discard, stages to run again."""
    every = [found for each in diagnosis.findings.values() for found in each]
    told = []
    for each in folded(every, diagnosis.suppressed):
        if each.shown.claim.verdict is not Verdict.PROVEN:
            continue
        found = each.first  # what is proven now was wrong when it was first suspected
        if set(RULES[found.code].taints) <= {"metrics"}:
            told.append(
                f"{found.code}: the weights are as they should be; numbers from {found.where} on are not"
            )
            continue
        stages = list(recipe.stages)
        again = stages[stages.index(found.stage) :]
        told.append(
            f"{found.code}: discard checkpoints of {found.stage} after {counted(found.step, 'update')},"
            f" and all later; run again: {', '.join(again)}"
        )
    return told


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
            f"{len(clean)} rules are clean over up to {max(each.steps for each in clean)} updates: {codes}",
        )
    unchecked = [each for each in results if each.verdict is Verdict.NOT_CHECKED]
    if unchecked:
        needs = "; ".join(sorted({need for each in unchecked for need in each.missing}))
        codes = ", ".join(each.code for each in unchecked)
        yield Hypothesis(
            "a bug that no rule could look for", "open", f"{codes} lack {needs}", "truing check RECIPE", 1.0
        )


def signal(story: Story) -> Iterator[Hypothesis]:
    """Groups of equal reward teach nothing; what they cost."""
    share = story.last("group/zero_variance_share")
    if math.isnan(share):
        return
    right, wrong = story.last("group/all_right_share"), story.last("group/all_wrong_share")
    seconds = sum(
        sum(row.seconds.values()) * row.metrics.get("group/zero_variance_share", 0.0) for row in story.steps
    )
    tokens = sum(
        row.metrics.get("tokens/sampled", 0.0) * row.metrics.get("group/zero_variance_share", 0.0)
        for row in story.steps
    )
    told = f"{share:.0%} of groups earn the same ({right:.0%} all right, {wrong:.0%} all wrong)"
    cost = f"; so far they cost {seconds / 60:.1f} minutes and {tokens:.0f} tokens"
    if share < 0.5:
        yield Hypothesis("groups have no signal", "ruled out", told + cost)
    elif wrong > 0.9:
        yield Hypothesis(
            "tasks are too hard, or the verifier is dead",
            "open",
            told + cost,
            "truing check RECIPE --static: does the demonstration score full?",
            0.5,
        )
    else:
        state: State = "found" if share >= 0.8 else "open"
        advice = "tasks are too easy" if right > wrong else "tasks are too hard"
        yield Hypothesis(
            f"groups have no signal: {advice}",
            state,
            told + cost,
            'gates.equal_groups = "resample", or other tasks',
            10,
        )


def evaluation(story: Story) -> Iterator[Hypothesis]:
    """Whether the evaluation could see a gain at all."""
    estimates = [each["estimate"] for each in story.evaluations if each.get("estimate")]
    if len(estimates) < 2:
        return
    now = estimates[-1]
    # where all answers earn the same, an interval has no width, and 3 ÷ n is what may still be true
    half = (now["high"] - now["low"]) / 2 or 3 / now["tasks"]
    needed = math.ceil(now["tasks"] * (half / 0.04) ** 2)
    unseen = f"a gain below {half * math.sqrt(2):.2f} is not seen"
    told = f"{now['mean']:.3f} ± {half:.3f} over {now['tasks']} tasks: {unseen}"
    if half > 0.04:
        yield Hypothesis(
            "the evaluation is too small", "open", told, f"truing eval {story.run} eval.tasks={needed}", 5.0
        )
    else:
        yield Hypothesis("the evaluation is too small", "ruled out", told)


def lengths(story: Story) -> Iterator[Hypothesis]:
    """Whether the reward favours short answers, and whether many are cut."""
    graded = {row.sample.rollout_id: row for row in story.rows if not math.isnan(row.sample.reward)}
    pairs = [(sum(t.end - t.start for t in row.sample.turns), row.sample.reward) for row in graded.values()]
    if len({length for length, _ in pairs}) > 1 and len({reward for _, reward in pairs}) > 1:
        rank = stats.spearmanr([length for length, _ in pairs], [reward for _, reward in pairs])
        rho, chance = float(rank.statistic), float(rank.pvalue)
        told = (
            f"rank correlation of length and reward {rho:+.2f}, {len(pairs)} attempts (chance {chance:.1g})"
        )
        favours = rho < -0.3 and chance < 1e-3
        yield Hypothesis(
            "the reward favours short answers",
            "open" if favours else "ruled out",
            told,
            "read the best and the shortest answers: truing tokens RUN" if favours else "",
            3.0 if favours else 0.0,
        )
    cut = story.last("truncated/share")
    if not math.isnan(cut):
        yield Hypothesis(
            "answers are cut",
            "found" if cut > 0.3 else "ruled out",
            f"{cut:.0%} of attempts are cut at {story.recipe.sampling.max_new_tokens} tokens",
            "sampling.max_new_tokens" if cut > 0.3 else "",
        )
    banned = story.recipe.sampling.min_new_tokens
    yield Hypothesis(
        "the stop token is banned",
        "open" if banned else "ruled out",
        f"sampling.min_new_tokens = {banned}",
        "the same with sampling.min_new_tokens=0" if banned else "",
        15.0 if banned else 0.0,
    )


def supervised(story: Story) -> Iterator[Hypothesis]:
    """Whether supervised fine-tuning ended too early."""
    losses = [row.metrics["loss/supervised"] for row in story.supervised if "loss/supervised" in row.metrics]
    if len(losses) < 8:
        return
    quarter = len(losses) // 4
    before, after = (sum(part) / quarter for part in (losses[-2 * quarter : -quarter], losses[-quarter:]))
    falling = after < 0.9 * before
    yield Hypothesis(
        "supervised fine-tuning was too short",
        "open" if falling else "ruled out",
        f"its loss was {before:.3g}, and {after:.3g} over the last quarter of {len(losses)} updates",
        f"sft.steps={2 * len(losses)}" if falling else "",
        15.0 if falling else 0.0,
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
            "truing check RECIPE --static" if failed > 0.1 else "",
        )
    valid = story.last("tools/valid_share")
    if not math.isnan(valid):
        yield Hypothesis(
            "tools are called wrongly",
            "found" if valid < 0.5 else "ruled out",
            f"{valid:.0%} of calls are valid",
        )


def size(story: Story) -> Iterator[Hypothesis]:
    """Whether updates are too small to be seen, or so large that they undo each other."""
    first, last, chance = trend(story)
    if last > first and chance < 0.01:
        yield Hypothesis(
            "updates are too small", "ruled out", f"the reward rose from {first:.3f} to {last:.3f}"
        )
        return
    rate, steps = story.recipe.stage(story.stage).learning_rate, min(20, len(story.steps))
    yield Hypothesis(
        "updates are too small",
        "open",
        f"learning rate {rate:g} over {len(story.steps)} updates, reward from {first:.3f} to {last:.3f}",
        f"truing train RECIPE {story.stage}.learning_rate={10 * rate:g} {story.stage}.steps={steps}",
        20.0,
    )


ASKED: tuple[Callable[[Story], Iterator[Hypothesis]], ...] = (
    bugs,
    signal,
    evaluation,
    lengths,
    supervised,
    families,
    world,
    size,
)
"""Each asks one thing, and may have several answers."""
