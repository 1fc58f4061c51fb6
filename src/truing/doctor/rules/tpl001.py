"""TPL001: Prompts do not open the policy's turn.

What: After the last stop of the prompt there is nothing, or a line break: the template has ended a turn,
and has not begun that of the policy.

Why it is silent: The policy writes the opening itself, mostly right, and is trained on it: its first tokens
are template, and carry the advantage of the answer. Sometimes it continues as the user. If supervised
fine-tuning opened the turn, the policy never learned to.

How it is measured: The rule finds the last stop id in the prompt of each rollout, and counts the tokens
after it up to the first turn.

Healthy look-alikes: A prompt without any stop id, as for a model that completes text. A template that opens
the turn with a single token that is not a line break, which is rare: therefore this is only suspected.

Fix: Render prompts with the generation prompt (`add_generation_prompt=True`), in training, sampling and
evaluation alike.

References: https://huggingface.co/docs/transformers/chat_templating, docs/templates.md
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import STOP_ID, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

SHORT = 1
"""Tokens after the last stop that may be a line break."""

HALF = 0.5
"""Of the rollouts."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim most prompts with a stop near their end: one template renders all."""
    stop_N = torch.isin(step.tokens["token_ids"], torch.tensor(step.setup.stop_ids or ()))
    prompts, ended = 0, list[tuple[int, int, int]]()
    for index, row, part in step.slices():
        if not row.turns or not (stops := stop_N[part][: row.turns[0].start].nonzero()[:, 0].tolist()):
            continue
        prompts += 1
        if row.turns[0].start - stops[-1] - 1 <= SHORT:
            ended.append((index, stops[-1], row.turns[0].start))
    if ended and len(ended) >= HALF * prompts:
        row, start, end = ended[0]
        yield Claim(
            Verdict.SUSPECT,
            f"{len(ended)} of {prompts} prompts end with a stop: the policy's turn is not opened",
            got="a stop, and at most a line break after it",
            expected="the template's opening before an answer",
            row=row,
            start=start,
            end=end,
            specificity=2,
        )


def example() -> Step:
    """Prompts are rendered without the generation prompt."""
    step = example_step()
    ids = step.tokens["token_ids"].clone()
    ids[step.position_in_sample == 3] = STOP_ID
    return changed_step(step, token_ids=ids)


def opened() -> Step:
    """A stop ends the user's turn, and two tokens open the next."""
    step = example_step(prompt=6)
    ids = step.tokens["token_ids"].clone()
    ids[step.position_in_sample == 3] = STOP_ID
    return changed_step(step, token_ids=ids)


RULE = Rule(
    code="TPL001",
    name="turn-not-opened",
    kind="S",
    needs=("token_ids", "sample.turns", "setup.stop_ids"),
    taints=("sft", "policy"),
    applies=lambda step: step.setup.stop_ids != (),
    judge=judge,
    example=example,
    lookalikes=(opened,),
)
