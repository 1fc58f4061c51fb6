"""TPL003: Prompts differ from the rendering of their tasks.

What: The ids before an answer differ from the rendering of the task's messages and tools: a system message
is missing, an example or a date was added, a tool is left out, a switch of the template is another.

Why it is silent: Each stage looks right by itself. The policy learned its answers in supervised fine-tuning
after one prompt and gives them after another. The reward begins lower than it should, and RL first learns
to undo that.

How it is measured: For some tasks of each step the check renders the prompt once more, from the messages
and tools that the environment gave before the first stage, and compares it id by id. Before the first
step, it checks the prompts of each stage in the same way. What stands before the later turns of some rollouts
must be the end of the template's text of the conversation up to there.

Healthy look-alikes: A forced prefix, which belongs to no prompt. Later samples of a rollout whose template
re-renders earlier turns. Prompts shortened by `episode.max_prompt_tokens`: they are shortened for all
stages.

Fix: Change the environment's `tasks`, which all stages and the evaluation share, and never the prompts of
one stage. The first different token shows what was added or lost.

References: docs/templates.md, docs/tasks.md
"""

from collections.abc import Iterator
from typing import Any

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim prompts that differ."""
    facts = step.facts["prompts"]
    if facts["other"]:
        got, expected = (
            f"{each['tokens']} tokens, there {each['text']!r}" for each in (facts["got"], facts["expected"])
        )
        yield Claim(
            Verdict.PROVEN,
            f"{facts['other']} of {facts['asked']} prompts differ from the rendering of their tasks, the"
            f" first from token {facts['at']} on",
            got=got,
            expected=expected,
            row=step.row_of(facts["sample_id"]),
            start=facts["at"],
            end=facts["at"] + 1,
            specificity=3.2,
        )
    later = step.facts.get("later_prompts", {})
    if other := later.get("other", 0):
        yield Claim(
            Verdict.PROVEN,
            f"before {other} of {with_count(later['asked'], 'later turn')} stands something else than the"
            " template's text",
            got=f"… {later['got']!r} before turn {later['turn'] + 1}",
            expected=f"… {later['expected']!r}",
            row=step.row_of(later["rollout"]),
            specificity=3.2,
        )


def _checked(**facts: Any) -> Step:
    return changed_step(example_step(), facts={"prompts": {"asked": 2, "other": 0} | facts})


def example() -> Step:
    """Supervised fine-tuning is without the system message."""
    got, expected = {"tokens": 4, "text": "<user>"}, {"tokens": 9, "text": "<system>"}
    return _checked(other=2, sample_id="s0", task_id="t0", at=1, got=got, expected=expected)


def later_turn_cut() -> Step:
    """The generation prompt of the third turn lacks its last token."""
    fact = {"asked": 8, "other": 4, "rollout": "r0", "turn": 2, "got": "<bot", "expected": "<bot>"}
    return changed_step(_checked(), facts={"later_prompts": fact})


def as_rendered() -> Step:
    """Every prompt is the rendering of its task."""
    return _checked()


RULE = Rule(
    code="TPL003",
    name="prompt-not-of-its-task",
    kind="E",
    needs=("facts.prompts",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(as_rendered,),
)
