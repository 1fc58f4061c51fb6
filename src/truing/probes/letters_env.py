"""Tasks of one letter each, and a world that answers back: what probes train on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truing.envs.base import Split
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Rollout, Task

Reward = Callable[[Rollout, Task], float]


class Letters:
    """A task for each of ``prompts``, a letter or a word; the reward is a function of the answer."""

    notes: Sequence[str] = ()

    def __init__(self, reward: Reward, prompts: Sequence[str] = "ab", answers: str = "cc") -> None:
        self.rewards: Rewards = {"reward": (reward, 1.0)}
        self.prompts, self.answers = prompts, answers

    def tasks(self, split: Split) -> Sequence[Task]:
        """One task for each prompt; those of evaluation, which no probe makes, ask with capitals."""
        shown = self.prompts if split == "train" else [prompt.upper() for prompt in self.prompts]
        return [
            Task(
                task_id=f"{split}-{prompt}",
                family="probe",
                messages=({"role": "user", "content": prompt},),
                answer=answer,
                demonstration=answer,
            )
            for prompt, answer in zip(shown, self.answers, strict=True)
        ]


class Echo(Letters):
    """The same in two turns: after the first one the world says ``said``."""

    def __init__(self, reward: Reward, env_reply: str, prompts: Sequence[str] = "ab") -> None:
        super().__init__(reward, prompts, answers="c" * len(prompts))
        self.env_reply = env_reply

    def open(self, task: Task) -> "_Echo":
        """A fresh world."""
        return _Echo(self.env_reply)


class _Echo:
    """What one attempt plays against."""

    def __init__(self, env_reply: str) -> None:
        self.said, self.heard = env_reply, list[str]()

    def reply(self, said: AssistantMessage) -> Sequence[Message]:
        """The world's one answer; after the second turn there is none, and the episode is over."""
        self.heard.append(said.content)
        return [{"role": "user", "content": self.said}] if len(self.heard) == 1 else []

    def outcome(self) -> Mapping[str, Any]:
        """What it heard, turn by turn."""
        return {"heard": self.heard}
