"""TPL002: Demonstrations are opened otherwise than attempts are.

What: What a template writes in front of the first answer is not the same in demonstrations and in attempts:
of one update, or of supervised fine-tuning and of the RL behind it.

Why it is silent: Each stage looks right by itself. What was learned behind one opening is asked for behind
another: the reward begins lower than it should, and RL learns first of all to undo that.

How it is measured: The template's last tokens before the first turn, of most demonstrations and of most
attempts, are compared, id for id; those of stages before are on record with each update.

Healthy look-alikes: Prompts that differ: only what stands right in front of an answer is compared. Attempts
that are begun with a forced prefix, which is no template's. A stage without demonstrations.

Fix: Render both by one function, with one template and one tokenizer. The first differing token says which
side changed.

References: docs/templates.md, https://github.com/modelscope/ms-swift/issues/9160
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from truing.doctor.evidence import Row, Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.msk007 import shown
from truing.doctor.rules.tok004 import failed_before_its_first_word
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin

TOKENS = 4
"""In front of an answer: what opens a turn in most templates has three."""


class Measured(NamedTuple):
    """Openings, as ids; empty where there is none."""

    demonstrated: tuple[int, ...]
    attempted: tuple[int, ...]
    stage: str  # of which the demonstrations are
    row: int
    end: int


def measure(step: Step) -> Measured:
    """The openings of this update, and of the stages before."""
    demo, drawn = opening(step, Origin.DEMO), opening(step, Origin.SAMPLED)
    shown_in = step.stage
    for before in step.past:
        told = before.facts.get("opening")
        if told and not demo and before.stage != step.stage:
            demo, shown_in = tuple(told["demonstrated"]), before.stage
    row = next((i for i, row in enumerate(step.rows) if _kind(step, i, row) == Origin.SAMPLED), 0)
    turns = step.rows[row].turns if step.rows else ()
    return Measured(demo, drawn, shown_in, row, turns[0].start if turns else 0)


def opening(step: Step, kind: Origin) -> tuple[int, ...]:
    """The template's last ids in front of most first turns of this kind; empty where there are none."""
    found = Counter[tuple[int, ...]]()
    for index, row, part in step.slices():
        if _kind(step, index, row) == kind:
            end = part.start + row.turns[0].start
            start = max(part.start, end - TOKENS)
            glue = step.tokens["origin"][start:end] == Origin.TEMPLATE
            ids = step.tokens["token_ids"][start:end].tolist()
            while ids and not bool(glue[len(glue) - len(ids) :].all()):
                ids = ids[1:]
            if ids:
                found[tuple(ids)] += 1
    return found.most_common(1)[0][0] if found else ()


def _kind(step: Step, index: int, row: Row) -> int:
    """Whose the first turn is; of a later sample of an attempt nobody asks."""
    if not row.turns or ("#" in row.sample_id and not row.sample_id.endswith("#0")):
        return -1
    start = row.turns[0].start  # an attempt may have failed before its first word
    said = 0 < start < step.lengths[index]
    return int(step.tokens["origin"][step.starts[index] + start]) if said else -1


def judge(found: Measured) -> Iterator[Claim]:
    """Ids are equal, or they are not; the shorter may be the end of the longer."""
    shared = min(len(found.demonstrated), len(found.attempted))
    if shared and found.demonstrated[-shared:] != found.attempted[-shared:]:
        yield Claim(
            Verdict.PROVEN,
            f"answers are opened otherwise than the demonstrations of {found.stage} were",
            got=f"ids {list(found.attempted)}",
            expected=f"ids {list(found.demonstrated)}",
            row=found.row,
            start=max(0, found.end - len(found.attempted)),
            end=found.end,
            specificity=3,
        )


def _after(ids: list[int]) -> Step:
    told: dict[str, Any] = {"opening": {"demonstrated": ids}}
    return changed_step(example_step(), past=[past_step(0, stage="sft", facts=told)])


def example() -> Step:
    """Supervised fine-tuning rendered by another template."""
    return _after([99])


def of_one_template() -> Step:
    """Attempts behind demonstrations of the same template."""
    step = example_step()
    return _after(list(opening(step, Origin.SAMPLED)))


RULE = Rule(
    code="TPL002",
    name="opened-otherwise",
    kind="E",
    needs=("token_ids", "origin", "row.turns"),
    taints=("sft", "policy"),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(of_one_template, shown, failed_before_its_first_word),
)
