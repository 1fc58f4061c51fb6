"""GRPO with a tool, and an environment object per rollout."""

import sys

from datasets import Dataset

from truing.trl import GRPOConfig, GRPOTrainer


def multiply(a: int, b: int) -> int:
    """
    Multiplies two integers.

    Args:
        a: The first factor.
        b: The second factor.

    Returns:
        The product.
    """
    return a * b


class Counter:
    """A counter that the policy moves to the value of a task."""

    def reset(self, goal, **kwargs):
        """Start at 0, and tell the goal."""
        self.value, self.goal = 0, goal
        return f" The counter is at 0; the goal is {goal}."

    def add(self, step: int) -> int:
        """
        Adds to the counter.

        Args:
            step: What to add.

        Returns:
            The new value.
        """
        self.value += step
        return self.value


def near_goal(completions, environments, **kwargs):
    """Reward the distance to the goal."""
    return [1 / (1 + abs(each.goal - each.value)) for each in environments]


def short(completions, **kwargs):
    """Reward short answers."""
    return [-len(messages[-1]["content"]) / 100 for messages in completions]


rows = [
    {"prompt": [{"role": "user", "content": "Move the counter to its goal."}], "goal": goal}
    for goal in range(1, 33)
]

trainer = GRPOTrainer(
    model=sys.argv[1] if len(sys.argv) > 1 else "tiny",
    reward_funcs=[near_goal, short],
    args=GRPOConfig(
        output_dir="trl-tools",
        max_steps=2,
        max_completion_length=24,
        max_tool_calling_iterations=3,
        reward_weights=[1.0, 0.1],
        bf16=False,
        logging_steps=1,
    ),
    train_dataset=Dataset.from_list(rows),
    tools=[multiply],
    environment_factory=Counter,
)
trainer.train()
