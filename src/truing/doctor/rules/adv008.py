"""ADV008: A group holds rollouts of different tasks.

What: Rollouts that share a baseline answer different prompts, or a group has too many rollouts.

Why it is silent: The mean of a group is a number, whatever it averages. If one task is easier than the
other, its rollouts are all better than the mean, and the loss reinforces them for the task alone.

How it is measured: Within a group, task ids must be equal. Prompts must be equal too, id for id, without
forced prefixes. No group may have more rollouts than declared. A group with fewer lost some to errors.

Healthy look-alikes: Later samples of one rollout, if the chat template re-renders earlier turns: only its
first sample begins with the task's prompt. A prefix that was forced on some rollouts. Demonstrations with
rollouts in one batch: they have groups of their own. An environment that opens one task in several ways:
then prompts differ, and the task is one.

Fix: Let the sampler repeat prompts, and set the group id of each repetition at that moment. Do not derive
it from the position after a shuffle, or across ranks.

References: https://arxiv.org/abs/2402.03300, https://arxiv.org/abs/2402.14740
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.token_places import ClaimFields
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.types.token import Origin


class Measured(NamedTuple):
    """Groups of several tasks, of one task with several prompts, and of too many rollouts."""

    groups: int
    tasks: int
    prompts: int
    nameless: bool  # whether tasks have no ids, so that prompts identify them
    crowded: int
    size: int | None
    largest: int
    row: int  # the first that does not belong
    end: int  # of its prompt


def measure(step: Step) -> Measured:
    """Tasks, prompts and rollouts of each group."""
    tasks: dict[str, set[str]] = defaultdict(set)
    prompts: dict[str, set[object]] = defaultdict(set)
    rollouts: dict[str, set[str]] = defaultdict(set)
    outsider = None
    for index, row, part in step.slices():
        if bool(step.tokens["supervised_mask"][part].any()) if "supervised_mask" in step.tokens else False:
            continue
        known = len(tasks[row.group_id]), len(prompts[row.group_id])
        rollouts[row.group_id].add(row.rollout_id)
        if not step.kept[index]:  # a failed rollout may have ended before its first token
            continue
        tasks[row.group_id].add(row.task_id)
        if row.begins_with_task:
            prompts[row.group_id].add(_prompt(step, row, part))
        now = len(tasks[row.group_id]), len(prompts[row.group_id])
        if outsider is None and known != (0, 0) and max(now) > 1 and now != known:
            outsider = index
    size = step.setup.group_size if step.setup.algo in ("grpo", "rloo") else None
    row = outsider or 0
    return Measured(
        len(rollouts),
        sum(len(each) > 1 for each in tasks.values()),
        sum(len(each) > 1 for each in prompts.values()),
        all(not row.task_id for row in step.samples),
        sum(size is not None and len(each) > size for each in rollouts.values()),
        size,
        max((len(each) for each in rollouts.values()), default=0),
        row,
        step.samples[row].prompt_length if step.samples else 0,
    )


def _prompt(step: Step, row: SampleFacts, part: slice) -> object:
    """Return the ids of a prompt without forced tokens, or else its hash."""
    if "token_ids" not in step.tokens or "origin" not in step.tokens:
        return row.prompt_hash
    ids_P = step.tokens["token_ids"][part][: row.prompt_length]
    rendered_P = step.tokens["origin"][part][: row.prompt_length] != Origin.FORCED
    return tuple(ids_P[rendered_P].tolist())


def judge(step: Step) -> Iterator[Claim]:
    """Claim several tasks in a group as proof, several prompts of one task as suspicion."""
    measured = measure(step)
    place: ClaimFields = {"row": measured.row, "start": 0, "end": measured.end}
    if measured.tasks or (measured.prompts and measured.nameless):
        what, count = ("tasks", measured.tasks) if measured.tasks else ("prompts", measured.prompts)
        yield Claim(
            Verdict.PROVEN,
            f"{count} of {measured.groups} groups contain rollouts of different {what}",
            got=f"a different one at sample {measured.row}",
            expected="one prompt per group",
            specificity=3,
            **place,
        )
    elif measured.prompts:
        yield Claim(
            Verdict.SUSPECT,
            f"in {measured.prompts} of {measured.groups} groups, rollouts of one task start with different"
            " prompts",
            got=f"a different one at sample {measured.row}",
            expected="one prompt per group",
            specificity=2,
            **place,
        )
    if measured.crowded:
        yield Claim(
            Verdict.PROVEN,
            f"{measured.crowded} of {measured.groups} groups have more rollouts than the declared group size",
            got=str(measured.largest),
            expected=f"at most {measured.size}",
            specificity=2.5,
        )


def example() -> Step:
    """Group ids follow positions, after a shuffle of the batch."""
    healthy = example_step()
    return changed_step(healthy, samples={1: {"group_id": "g1"}, 5: {"group_id": "g0"}})


def forced() -> Step:
    """All rollouts of a group begin with a forced prefix, one of them with a different one."""
    step = example_step()
    origin_N, ids_N = step.tokens["origin"].clone(), step.tokens["token_ids"].clone()
    for start in step.starts[:4]:
        origin_N[start + 3] = Origin.FORCED
    ids_N[3] = 7
    return changed_step(
        step, samples={0: {"prompt_hash": "p0 with a prefix"}}, origin=origin_N, token_ids=ids_N
    )


RULE = Rule(
    code="ADV008",
    name="group-mixed",
    kind="E",
    needs=("sample.group_id", "sample.prompt_hash"),
    taints=("policy",),
    applies=lambda step: step.setup.algo not in ("sft", "rft"),
    judge=judge,
    example=example,
    lookalikes=(forced,),
)
