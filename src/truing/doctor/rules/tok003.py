"""TOK003: Samples begin with BOS twice.

What: The first two tokens of a sample are both the BOS id.

Why it is silent: The model has never seen this start, and still answers, a little worse. Training and
sampling share it, so no comparison within the run shows it. Evaluation elsewhere, with one BOS, has another
prompt.

How it is measured: The rule compares the first two ids of each sample with the tokenizer's BOS id.

Healthy look-alikes: A BOS id that also marks turns begins every turn (SmolLM2's is `<|im_start|>`): the
rule checks the first two places alone. A tokenizer without BOS.

Fix: A chat template writes BOS itself. Encode its output without special tokens, or let it return ids.

References: https://github.com/vllm-project/vllm/pull/27515, https://github.com/huggingface/open-r1/pull/462
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim a second BOS."""
    bos_N = step.tokens["token_ids"] == step.setup.bos_id
    doubled_N = torch.zeros_like(bos_N)
    doubled_N[1:] = bos_N[1:] & bos_N[:-1] & (step.position_in_sample[1:] == 1)
    if doubled := places(step, doubled_N):
        yield Claim(
            Verdict.PROVEN,
            f"{doubled.rows} of {len(step.samples)} samples begin with BOS twice",
            got=str(doubled),
            expected="BOS once, from the chat template or from the tokenizer",
            row=doubled.row,
            start=0,
            end=2,
            specificity=3,
        )


def example() -> Step:
    """The template writes BOS, and the tokenizer adds its own."""
    healthy = example_step()
    ids = healthy.tokens["token_ids"].masked_fill(healthy.position_in_sample == 1, healthy.setup.bos_id or 0)
    return changed_step(healthy, token_ids=ids)


def marks_every_turn() -> Step:
    """Every turn begins with BOS."""
    step = example_step(prompt=6)
    ids = step.tokens["token_ids"].masked_fill(
        (step.position_in_sample == 3) | (step.position_in_sample == 5), step.setup.bos_id or 0
    )
    return changed_step(step, token_ids=ids)


RULE = Rule(
    code="TOK003",
    name="doubled-bos",
    kind="E",
    needs=("token_ids", "setup.bos_id"),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(marks_every_turn,),
)
