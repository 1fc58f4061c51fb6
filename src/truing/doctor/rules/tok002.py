"""TOK002: Rollouts of one group have different prompts.

What: Samples of one group begin with different ids, or samples with one prompt hash do.

Why it is silent: Each sample is right by itself. But an advantage compares rollouts of one task, and here it
compares tasks: a rollout of the easy one gets a positive advantage.

How it is measured: The rule compares the prompt ids of each rollout's first sample within its group, up to
the first turn, without forced tokens. It does the same for samples that share a prompt hash.

Healthy look-alikes: Forced tokens on some rollouts of a group. Later samples of a rollout whose template
re-renders earlier turns: their prompts contain those turns. Demonstrations in the batch have groups of
their own. Failed rollouts are not trained.

Fix: Give each group an id when creating its prompts, and keep samples with their id through every sort, shard
and shuffle. Render a prompt once for its group.

References: https://arxiv.org/abs/2402.03300, docs/templates.md
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.rules.msk002 import some_begun
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.types.token import Origin
from truing.utils.format import with_count


class Prompt(NamedTuple):
    """The prompt of a rollout before its first turn."""

    row: int
    whole: tuple[int, ...]
    shown: tuple[int, ...]  # without forced tokens


class Apart(NamedTuple):
    """Samples whose prompt differs from the first of their name."""

    rows: int
    row: int  # the first of them
    at: int  # its first different token
    end: int  # of its prompt


class Measured(NamedTuple):
    """Different prompts of one name, and different hashes of equal ids."""

    groups: Apart
    hashes: Apart
    named: int  # samples with the ids of the first of their group, and another hash


def measure(step: Step) -> Measured:
    """Compare prompts within groups, and within hashes."""
    prompts = [
        _prompt(step, index, row, part)
        for index, row, part in step.slices()
        if step.kept[index] and row.begins_with_task
    ]
    groups = [step.samples[prompt.row].group_id for prompt in prompts]
    hashes = [step.samples[prompt.row].prompt_hash for prompt in prompts]
    hash_of = {prompt.row: name for prompt, name in zip(prompts, hashes, strict=True)}
    named = sum(
        first.whole == other.whole and hash_of[first.row] != hash_of[other.row]
        for first, other in _pairs(prompts, groups)
    )
    return Measured(_apart(prompts, groups), _apart(prompts, hashes), named)


def _prompt(step: Step, index: int, row: SampleFacts, part: slice) -> Prompt:
    where = slice(part.start, part.start + row.prompt_length)
    ids, chosen = step.tokens["token_ids"][where], step.tokens["origin"][where] != Origin.FORCED
    return Prompt(index, tuple(ids.tolist()), tuple(ids[chosen].tolist()))


def _pairs(prompts: Sequence[Prompt], names: Sequence[str]) -> Iterator[tuple[Prompt, Prompt]]:
    """Yield each prompt with the first of the same name, if it has one."""
    firsts: dict[str, Prompt] = {}
    for name, prompt in zip(names, prompts, strict=True):
        if name and firsts.setdefault(name, prompt) is not prompt:
            yield firsts[name], prompt


def _apart(prompts: Sequence[Prompt], names: Sequence[str]) -> Apart:
    """Return the samples with different prompts of one name."""
    different = [(a, b) for a, b in _pairs(prompts, names) if a.shown != b.shown]
    if not different:
        return Apart(0, 0, 0, 0)
    first, other = different[0]
    end = len(other.whole)
    at = next((t for t in range(end) if first.whole[t : t + 1] != other.whole[t : t + 1]), end - 1)
    return Apart(len(different), other.row, at, end)


def judge(step: Step) -> Iterator[Claim]:
    """Claim several prompts in a group, and several hashes of a prompt."""
    measured = measure(step)
    of_group, of_hash = (
        (measured.groups, "of their group", 3.0),
        (measured.hashes, "with their prompt hash", 1.0),
    )
    where, name, specificity = of_group if measured.groups.rows else of_hash
    if where.rows:
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(where.rows, 'sample has', 'samples have')} another prompt than the first sample"
            f" {name}",
            got=f"sample {where.row} differs from token {where.at}",
            expected="one prompt, id for id, except forced tokens",
            row=where.row,
            start=where.at,
            end=where.end,
            specificity=specificity,
        )
    if measured.named:
        yield Claim(
            Verdict.SUSPECT,
            f"{with_count(measured.named, 'sample has', 'samples have')} the prompt ids of the group, and"
            " another"
            " hash",
            expected="one hash for each prompt",
        )


def example() -> Step:
    """Two groups exchanged a member on the way to the trainer."""
    healthy = example_step()
    ids = healthy.tokens["token_ids"].clone()
    first, second = (slice(healthy.starts[row], healthy.starts[row] + 4) for row in (1, 5))
    ids[first], ids[second] = ids[second].clone(), ids[first].clone()
    hashes = {1: {"prompt_hash": "p1"}, 5: {"prompt_hash": "p0"}}
    return changed_step(healthy, token_ids=ids, samples=hashes)


RULE = Rule(
    code="TOK002",
    name="prompts-differ-in-group",
    kind="E",
    needs=("token_ids", "origin", "sample.group_id"),
    taints=("policy",),
    applies=lambda step: any(row.begins_with_task for row in step.samples),
    judge=judge,
    example=example,
    lookalikes=(some_begun,),
)
