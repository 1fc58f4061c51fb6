"""What is proven of a model, its tasks and its chat template before the first update."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.algos.grpo import no_turn_rewards
from truing.chat import Chat
from truing.chat.unshown import refuse_unwritten
from truing.checks import check_tasks, spread
from truing.checks.trial import hold_trial, turns
from truing.config import GrpoConfig
from truing.contract import RAW, SamplingContract
from truing.errors import DataError, ModelError
from truing.models.score import autocast, causal_model, score
from truing.rollout.collect import Scene
from truing.sample.drawing import Request
from truing.sample.hf import HFSampler
from truing.training.collate import collate
from truing.types import Origin, Sample, Task

TOLERANCE = {"cpu": 1e-3, "cuda": 0.2}
"""Nats by which two forwards may differ: rounding in fp32, and in bf16."""

LOUD = 100.0
"""Nats, more than any architecture caps logits at."""

PROMPT, ANSWER = 8, 16

TASKS = 4
"""Tasks of each split that are looked at: fewer plays than one step has."""

NEVER = (
    "the stop is trained",
    "BOS is not doubled",
    "SFT and RL show one prompt",
    "every message is shown",
    "tools are shown in full",
    "tool answers are shown",
)
"""Checks without which no run begins; what the others find is told."""


def prove_forward(policy: nn.Module) -> None:
    """Raise unless ``score`` computes what the model's own forward computes.

    ``score`` calls the decoder and the output head apart. Some architectures mask attention in ways of their
    own, or scale or cap their logits after the head; trained like this they would learn a wrong distribution.
    A cap leaves small logits alone, so the second time the head says what no cap would let pass.
    """
    causal = causal_model(policy)
    policy.eval()
    _prove_same(policy, causal)
    hook = causal.get_output_embeddings().register_forward_hook(
        lambda _module, _args, out: torch.linspace(-LOUD, LOUD, out.shape[-1]).to(out).expand_as(out)
    )
    try:
        _prove_same(policy, causal)
    finally:
        hook.remove()


@torch.no_grad()
def _prove_same(policy: nn.Module, causal: PreTrainedModel) -> None:
    """Raise unless both forwards give the same log-probabilities."""
    vocabulary = causal.config.get_text_config().vocab_size
    prompt, counting = torch.arange(PROMPT) % vocabulary, torch.arange(ANSWER)
    samples = [_proof_sample(str(step), prompt, counting * step % vocabulary) for step in (7, 11)]
    batch = collate(samples)
    scored = score(policy, batch, batch.policy_mask).logprob[batch.policy_mask].cpu()
    with autocast(causal.device):
        logits = causal(input_ids=batch.token_ids.to(causal.device)).logits[:, PROMPT - 1 : -1].float()
    answers = batch.token_ids[:, PROMPT:, None].to(causal.device)
    plain = logits.log_softmax(-1).gather(2, answers).flatten().cpu()
    _refuse(
        causal,
        scored - plain,
        "Truing's forward is not this model's own",
        "its logits are scaled or capped, or its attention is unusual: use another architecture",
    )


@torch.no_grad()
def prove_sampler(policy: nn.Module, sampler: HFSampler) -> None:
    """Raise unless the log-probabilities that the sampler records are those that ``score`` finds."""
    causal = causal_model(policy)
    contract = SamplingContract(max_new_tokens=ANSWER)
    vocabulary = causal.config.get_text_config().vocab_size
    prompts = [torch.arange(length) % vocabulary for length in (PROMPT, PROMPT + 1)]
    drawn = sampler.generate([Request(ids, ("proof", i)) for i, ids in enumerate(prompts)], contract)
    samples = [
        _proof_sample(str(i), ids, each.token_ids)
        for i, (ids, each) in enumerate(zip(prompts, drawn, strict=True))
    ]
    batch = collate(samples)
    scored = score(policy, batch, batch.policy_mask).logprob[batch.policy_mask].cpu()
    _refuse(
        causal,
        scored - torch.cat([each.logprob for each in drawn]),
        "the sampler does not compute what the trainer does",
        "its attention is unusual: use another architecture",
    )


def _refuse(causal: PreTrainedModel, difference_N: Tensor, what: str, remedy: str) -> None:
    """Raise where log-probabilities differ by more than rounding."""
    largest, tolerance = difference_N.abs().max().item(), TOLERANCE[causal.device.type]
    if not largest <= tolerance:  # NaN is no proof
        raise ModelError(
            f"{what} ({causal.config.model_type})",
            got=f"log-probabilities that differ by up to {largest:.2g} nats",
            expected=f"at most {tolerance}",
            remedy=remedy,
        )


def _proof_sample(name: str, prompt: Tensor, answer: Tensor) -> Sample:
    """A prompt and an answer to it."""
    token_ids = torch.cat([prompt, answer])
    drawn = torch.arange(len(token_ids)) >= len(prompt)
    return Sample.bare(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), name),
        prompt_length=len(prompt),
        turns=(),
        contract=RAW,
        token_ids=token_ids,
        origin=torch.where(drawn, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
        policy_mask=drawn,
    )


def prove_credit(scene: Scene, tasks: Sequence[Task], cfg: GrpoConfig) -> None:
    """Raise where GRPO asks for an advantage per turn, and nothing judges turns."""
    if cfg.advantage_per == "episode":
        return
    for play in hold_trial(scene, tasks[:1]).plays:
        if play.grades and not play.grades[0].turn_rewards:
            raise no_turn_rewards(f"task {play.task.task_id}")


def prove_demonstrations(chat: Chat, tasks: Sequence[Task]) -> None:
    """Raise where the chat template does not write all that a turn of a demonstration says.

    Each turn is tried behind its task's prompt, so nothing has to be played.
    """
    for task in tasks:
        for said in turns(task):
            try:
                refuse_unwritten(chat, task.messages, said, task.tools)
            except DataError as error:
                raise DataError(
                    f"{error.what}: task {task.task_id}",
                    got=error.got,
                    expected=error.expected,
                    remedy=error.remedy,
                ) from error


def prove_tasks(scene: Scene, *splits: Sequence[Task]) -> Iterator[str]:
    """A sentence for each check of the environment and the chat template that finds something.

    Raises:
        ModelError: A doubled BOS; messages, tools or their answers that no prompt shows; a renderer at fault.
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
