"""SFT on completions, with an adapter."""

import sys

from datasets import Dataset
from peft import LoraConfig

from truing.trl import SFTConfig, SFTTrainer

words = ["apple", "house", "seven", "light", "table", "green", "river", "stone"]
rows = [
    {
        "prompt": [{"role": "user", "content": f"Spell {word}."}],
        "completion": [{"role": "assistant", "content": "-".join(word)}],
    }
    for word in words
]

trainer = SFTTrainer(
    model=sys.argv[1] if len(sys.argv) > 1 else "tiny",
    args=SFTConfig(output_dir="trl-sft", max_steps=4, learning_rate=1e-2, logging_steps=1, bf16=False),
    train_dataset=Dataset.from_list(rows),
    peft_config=LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"),
)
trainer.train()
trainer.save_model()
