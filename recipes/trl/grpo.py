"""GRPO with a reward function of its own: TRL's quickstart with another import."""

import sys

from datasets import Dataset

from truing.trl import GRPOConfig, GRPOTrainer


def reward_unique_characters(completions, **kwargs):
    """Reward completions with many different characters."""
    return [len(set(completion)) / 16 for completion in completions]


prompts = [{"prompt": f"The number after {number} is"} for number in range(64)]

trainer = GRPOTrainer(
    model=sys.argv[1] if len(sys.argv) > 1 else "tiny",
    reward_funcs=reward_unique_characters,
    args=GRPOConfig(
        output_dir="trl-grpo",
        max_steps=4,
        per_device_train_batch_size=16,
        max_completion_length=16,
        learning_rate=1e-3,
        bf16=False,
        logging_steps=1,
    ),
    train_dataset=Dataset.from_list(prompts),
)
trainer.train()
trainer.save_model()
