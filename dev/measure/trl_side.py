"""TRL's side: ``GRPOTrainer`` at its fastest on one machine: one batch, no checkpointing, no reference.

All answers of a step are generated at once, whatever the micro-batches.
"""

import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from transformers import PreTrainedTokenizerBase, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from dev.measure.cases import REPLY, Case, even_share
from dev.measure.random_models import model_folder


class TimedTrainer(GRPOTrainer):
    """GRPOTrainer that measures its generation time."""

    generation_seconds = 0.0

    def _generate(self, prompts: list[Any]) -> Any:
        started = time.perf_counter()
        try:
            return super()._generate(prompts)
        finally:
            self.generation_seconds += time.perf_counter() - started


class StepTimes(TrainerCallback):
    """Records the start of the training and the end of each step, and the generation time by then."""

    def __init__(self) -> None:
        self.trainer: TimedTrainer | None = None
        self.times: list[tuple[float, float]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the start."""
        self._record()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the end of a step."""
        self._record()

    def _record(self) -> None:
        assert self.trainer is not None
        self.times.append((time.perf_counter(), self.trainer.generation_seconds))


class MultiTurnRollout:
    """Several turns by TRL's own generation; each recomputes the whole history, as in its tool loop."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """Return the ids of prompts and of all turns, and which of these were sampled."""
        tokenizer = trainer.processing_class
        assert isinstance(tokenizer, PreTrainedTokenizerBase)
        prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        reply = tokenizer(
            f"{tokenizer.eos_token}\n<|im_start|>user\n{REPLY}<|im_end|>\n<|im_start|>assistant\n"
        ).input_ids
        completions: list[list[int]] = [[] for _ in prompts]
        masks: list[list[int]] = [[] for _ in prompts]
        for turn in range(self.case.turns):
            histories = [
                prompt + completion for prompt, completion in zip(prompt_ids, completions, strict=True)
            ]
            sampled, _ = trainer._generate_single_turn(
                histories, None, {}, self.case.group_size if turn == 0 else 1
            )
            reply_ids = reply if turn < self.case.replies else []
            for completion, mask, ids in zip(completions, masks, sampled, strict=True):
                completion += [*ids, *reply_ids]
                mask += [1] * len(ids) + [0] * len(reply_ids)
        return {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": None, "env_mask": masks}


def measure(case: Case, steps: int) -> dict[str, float]:
    """Return the median seconds of ``steps`` steps after the first, and of their parts."""
    clock = StepTimes()
    with tempfile.TemporaryDirectory() as folder:
        trainer = TimedTrainer(
            model=str(model_folder(case.model)),
            args=grpo_config(case, 1 + steps, folder),
            reward_funcs=[lambda completion_ids, **_: [even_share(ids) for ids in completion_ids]],
            train_dataset=Dataset.from_list(
                [{"prompt": messages} for messages in case.conversations(case.prompts * (1 + steps))]
            ),
            rollout_func=MultiTurnRollout(case) if case.replies else None,
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if case.lora else None,
            callbacks=[clock],
        )
        clock.trainer = trainer
        trainer.train()
    return times_of(clock.times)


def times_of(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return medians over the steps after the first, of the times of ``StepTimes``, seconds."""
    later = list(pairwise(times[1:]))
    seconds = median(after - before for (before, _), (after, _) in later)
    generate = median(after - before for (_, before), (_, after) in later)
    return {"step": seconds, "generate": generate, "train": seconds - generate}


def grpo_config(case: Case, steps: int, folder: str) -> GRPOConfig:
    """Return the case as TRL's arguments."""
    rows = case.prompts * case.group_size
    return GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=case.trl_rows or rows,
        gradient_accumulation_steps=rows // (case.trl_rows or rows),
        num_generations=case.group_size,
        max_completion_length=case.new_tokens,
        generation_kwargs={"min_new_tokens": case.new_tokens},
        gradient_checkpointing=case.trl_recomputes,
        beta=0.0,
        learning_rate=1e-5,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=not case.gpu,
        bf16=case.gpu,
        model_init_kwargs={"dtype": "bfloat16" if case.gpu else "float32"},
        disable_tqdm=True,
    )
