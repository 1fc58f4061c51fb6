"""TPL002: Demonstrations and rollouts open answers differently.

What: The template's tokens before the first answer differ between demonstrations and rollouts, of one
step, or of supervised fine-tuning and the RL after it.

Why it is silent: Each stage looks right by itself. The policy learned its answers after one opening and
gives them after another: the reward begins lower than it should, and RL first learns to undo that.

How it is measured: The rule compares the template's last tokens before the first turn, of most
demonstrations and of most rollouts, id for id. Each step records those of earlier stages.

Healthy look-alikes: Different prompts: the rule compares only the tokens directly before an answer.
Rollouts with a forced prefix, which is not part of the template. A stage without demonstrations.

Fix: Render both with one function, one template and one tokenizer. The first different token shows which
side changed.

References: docs/templates.md, https://github.com/modelscope/ms-swift/issues/9160
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.msk007 import demonstrated_step
from truing.doctor.rules.tok004 import failed_before_its_first_word
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.types.token import Origin

TOKENS = 4
"""Before an answer: the opening of a turn in most templates has three."""


def opening(step: Step, kind: Origin) -> tuple[int, ...]:
    """Return the template's last ids before most first turns of this kind; empty without any."""
    openings = Counter[tuple[int, ...]]()
    for index, row, part in step.slices():
        if _kind(step, index, row) == kind:
            end = part.start + row.turns[0].start
            start = max(part.start, end - TOKENS)
            is_template = step.tokens["origin"][start:end] == Origin.TEMPLATE
            ids = step.tokens["token_ids"][start:end].tolist()
            while ids and not bool(is_template[len(is_template) - len(ids) :].all()):
                ids = ids[1:]
            if ids:
                openings[tuple(ids)] += 1
    return openings.most_common(1)[0][0] if openings else ()


def _kind(step: Step, index: int, row: SampleFacts) -> int:
    """Return the origin of the first turn; −1 without one, and for a later sample of a rollout."""
    if not row.turns or row.number:
        return -1
    start = row.turns[0].start  # a rollout may have failed before its first token
    has_turn = 0 < start < step.lengths[index]
    return int(step.tokens["origin"][step.starts[index] + start]) if has_turn else -1


def judge(step: Step) -> Iterator[Claim]:
    """Claim unequal ids; the shorter may be the end of the longer."""
    demonstrated, sampled, stage = opening(step, Origin.DEMO), opening(step, Origin.SAMPLED), step.stage
    for before in step.past:
        recorded = before.facts.get("opening")
        if recorded and not demonstrated and before.stage != step.stage:
            demonstrated, stage = tuple(recorded["demonstrated"]), before.stage
    shared = min(len(demonstrated), len(sampled))
    if shared and demonstrated[-shared:] != sampled[-shared:]:
        row = next(i for i, row in enumerate(step.samples) if _kind(step, i, row) == Origin.SAMPLED)
        end = step.samples[row].turns[0].start
        yield Claim(
            Verdict.PROVEN,
            f"rollouts open answers differently from the demonstrations of {stage}",
            got=f"ids {list(sampled)}",
            expected=f"ids {list(demonstrated)}",
            row=row,
            start=max(0, end - len(sampled)),
            end=end,
            specificity=3,
        )


def _after(ids: list[int]) -> Step:
    facts: dict[str, Any] = {"opening": {"demonstrated": ids}}
    return changed_step(example_step(), past=[past_step(0, stage="sft", facts=facts)])


def example() -> Step:
    """Supervised fine-tuning uses another template."""
    return _after([99])


def of_one_template() -> Step:
    """Rollouts after demonstrations with the same template."""
    step = example_step()
    return _after(list(opening(step, Origin.SAMPLED)))


RULE = Rule(
    code="TPL002",
    name="opened-otherwise",
    kind="E",
    needs=("token_ids", "origin", "sample.turns"),
    taints=("sft", "policy"),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(of_one_template, demonstrated_step, failed_before_its_first_word),
)
