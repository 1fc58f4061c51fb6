"""What is proven of a model, its tasks and its chat template before the first update."""

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from truing.algos.grpo import no_turn_rewards
from truing.checks import check_tasks, spread
from truing.checks.trial import hold_trial
from truing.config import GrpoConfig
from truing.contract import RAW
from truing.errors import ModelError
from truing.models.score import autocast, causal_model, score
from truing.rollout.collect import Scene
from truing.training.collate import collate
from truing.types import Origin, Sample, Task

TOLERANCE = {"cpu": 1e-3, "cuda": 0.2}
"""Nats by which two forwards may differ: rounding in fp32, and in bf16."""

PROMPT, ANSWER = 8, 16

TASKS = 4
"""Tasks of each split that are looked at: fewer plays than one step has."""

NEVER = (
    "the stop is trained",
    "BOS is not doubled",
    "SFT and RL show one prompt",
    "tools are shown in full",
    "tool answers are shown",
)
"""Checks without which no run begins; what the others find is told."""


@torch.no_grad()
def prove_forward(policy: nn.Module) -> None:
    """Raise unless ``score`` computes what the model's own forward computes.

    ``score`` calls the decoder and the output head apart. Some architectures scale or cap their logits in
    between, or mask attention in ways of their own; trained like this they would learn a wrong distribution.
    """
    causal = causal_model(policy)
    policy.eval()
    token_ids = torch.arange(PROMPT + ANSWER) * 7 % causal.config.get_text_config().vocab_size
    drawn = torch.arange(len(token_ids)) >= PROMPT
    sample = Sample.bare(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), "proof"),
        prompt_length=PROMPT,
        turns=(),
        contract=RAW,
        token_ids=token_ids,
        origin=torch.where(drawn, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
    )
    scored = score(policy, collate([sample]), drawn[None]).logprob[0, PROMPT:].cpu()
    with autocast(causal.device):
        logits = causal(input_ids=token_ids[None].to(causal.device)).logits[0, PROMPT - 1 : -1].float()
    plain = logits.log_softmax(-1).gather(1, token_ids[PROMPT:, None].to(causal.device))[:, 0].cpu()
    difference = (scored - plain).abs().max().item()
    tolerance = TOLERANCE[causal.device.type]
    if difference > tolerance:
        raise ModelError(
            f"Truing's forward is not this model's own ({causal.config.model_type})",
            got=f"log-probabilities that differ by up to {difference:.2g} nats",
            expected=f"at most {tolerance}",
            remedy="its logits are scaled or capped, or its attention is unusual: use another architecture",
        )


def prove_credit(scene: Scene, tasks: Sequence[Task], cfg: GrpoConfig) -> None:
    """Raise where GRPO asks for an advantage per turn, and nothing judges turns."""
    if cfg.advantage_per == "episode":
        return
    for play in hold_trial(scene, tasks[:1]).plays:
        if play.grades and not play.grades[0].turn_rewards:
            raise no_turn_rewards(f"task {play.task.task_id}")


def prove_tasks(scene: Scene, *splits: Sequence[Task]) -> Iterator[str]:
    """A sentence for each check of the environment and the chat template that finds something.

    Raises:
        ModelError: A doubled BOS, tools or their answers that no prompt shows, or a renderer at fault.
    """
    tasks = [task for split in splits for task in spread(split, TASKS)]
    for name, result in check_tasks(scene, tasks).items():
        for finding in result.findings[:1]:
            if name in NEVER:
                raise ModelError(
                    f"{finding.what} ({finding.where})",
                    got=finding.got,
                    expected=finding.expected,
                    remedy=f"{finding.remedy}; `truing check` lists all",
                )
            expected = f", expected {finding.expected}" if finding.expected else ""
            yield f"{finding.where}: {finding.what}; got {finding.got}{expected}; {finding.remedy}"
