"""TRL's side: ``GRPOTrainer`` at its fastest on one machine: one batch, no checkpointing, no reference."""

import tempfile
import time
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from truing.bench.cases import MODEL, Case, letters
from truing.models.locate import locate


class Timed(GRPOTrainer):
    """The trainer, with a clock around its generation."""

    generating = 0.0

    def _generate(self, prompts: list[Any]) -> Any:
        started = time.perf_counter()
        try:
            return super()._generate(prompts)
        finally:
            self.generating += time.perf_counter() - started


class Steps(TrainerCallback):
    """When steps began and ended, and how long generation had taken by then."""

    def __init__(self) -> None:
        self.trainer: Timed | None = None
        self.marks: list[tuple[float, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step is over."""
        assert self.trainer is not None
        self.marks.append((time.perf_counter(), self.trainer.generating))


def measure(case: Case, steps: int) -> dict[str, float]:
    """Seconds of the last of ``steps`` steps, and of its parts."""
    clock = Steps()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Timed(
            model=str(locate(MODEL)),
            args=config(case, steps, folder),
            reward_funcs=[lambda completions, **_: [letters(c[0]["content"]) for c in completions]],
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": text}]} for text in case.texts(case.prompts * steps)]
            ),
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if case.lora else None,
            callbacks=[clock],
        )
        clock.trainer = trainer
        trainer.train()
    (before, generated_before), (after, generated_after) = clock.marks[-2:]
    generate = generated_after - generated_before
    return {"step": after - before, "generate": generate, "train": after - before - generate}


def config(case: Case, steps: int, folder: str) -> GRPOConfig:
    """The case as TRL's arguments."""
    return GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=case.prompts * case.group_size,
        num_generations=case.group_size,
        max_completion_length=case.new_tokens,
        generation_kwargs={"min_new_tokens": case.new_tokens},
        gradient_checkpointing=False,
        beta=0.0,
        learning_rate=1e-5,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
