"""The task of both sides: the same model, prompts, group, turns, lengths and reward."""

from collections.abc import Sequence
from dataclasses import dataclass

from truing.types.message import Message

MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Case:
    """A kind of step: ``prompts`` prompts of ``group_size`` rollouts each, ``new_tokens`` per turn."""

    name: str
    description: str
    prompts: int
    group_size: int
    new_tokens: int
    lora: bool
    sums: int = 0  # solved sums in each prompt before the question
    system_sums: int = 0  # solved sums in the shared system message
    replies: int = 0  # replies of the environment; the policy has one turn more
    model: str = MODEL  # or one of ``random_models.SHAPES``
    gpu: bool = False  # bfloat16 on CUDA
    trl_rows: int = 0  # rows of TRL's micro-batches, which must divide the step's; 0: all rows at once
    trl_recomputes: bool = False  # gradient checkpointing in TRL

    @property
    def turns(self) -> int:
        """Turns of the policy in a rollout."""
        return self.replies + 1

    def conversations(self, count: int) -> list[list[Message]]:
        """Return the messages of the first ``count`` prompts, all different."""
        shared: list[Message] = []
        if self.system_sums:
            shared = [{"role": "system", "content": _solved_sums(0, self.system_sums)}]
        return [
            [
                *shared,
                {"role": "user", "content": f"{_solved_sums(i, self.sums)} What is {i} + {3 * i}?".strip()},
            ]
            for i in range(count)
        ]


CASES = {
    case.name: case
    for case in (
        Case("short", "prompts of some 40 tokens, all weights", 2, 8, 48, lora=False),
        Case("long", "a prompt of more than 700 tokens, LoRA", 1, 8, 48, lora=True, sums=55),
        Case(
            "agent",
            "3 turns after a shared system prompt of 500 tokens, LoRA",
            *(2, 4, 32),
            lora=True,
            system_sums=36,
            replies=2,
        ),
        *(
            Case(
                name,
                f"8 prompts of some {tokens:,} tokens × 16 answers of 512, LoRA,"
                f" Qwen3-{size.upper()}'s shape at random, on CUDA",
                *(8, 16, 512),
                lora=True,
                sums=sums,
                model=f"qwen3-{size}",
                gpu=True,
            )
            for name, size, tokens, sums in (
                ("gpu-0.6b", "0.6b", 1000, 61),
                ("gpu-0.6b-4k", "0.6b", 4000, 229),
                ("gpu-4b", "4b", 1000, 61),
            )
        ),
    )
}

REPLY = "That was heard. 12 + 84 = 96. 13 + 91 = 104. Say more."
"""The environment's reply to every turn."""


def even_share(ids: Sequence[int]) -> float:
    """Return the reward: the share of even ids, so that answers of a group differ whatever they say."""
    return sum(i % 2 == 0 for i in ids) / max(1, len(ids))


def _solved_sums(i: int, count: int) -> str:
    """Return solved sums as text."""
    return " ".join(f"{k} + {7 * k + i} = {8 * k + i}." for k in range(11, 11 + count))
