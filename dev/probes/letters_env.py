"""Tasks of one letter each, and an environment with an answer of its own, for probes."""

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
        """Return one task for each prompt; evaluation tasks, which no probe uses, have capitals."""
        prompts = self.prompts if split == "train" else [prompt.upper() for prompt in self.prompts]
        return [
            Task(
                task_id=f"{split}-{prompt}",
                family="probe",
                messages=({"role": "user", "content": prompt},),
                answer=answer,
                demonstration=answer,
            )
            for prompt, answer in zip(prompts, self.answers, strict=True)
        ]


class Echo(Letters):
    """The same in two turns: after the first one the environment answers with a fixed text."""

    def __init__(self, reward: Reward, env_reply: str, prompts: Sequence[str] = "ab") -> None:
        super().__init__(reward, prompts, answers="c" * len(prompts))
        self.env_reply = env_reply

    def open(self, task: Task) -> "_Echo":
        """Return a new environment."""
        return _Echo(self.env_reply)


class _Echo:
    """The environment of one rollout."""

    def __init__(self, env_reply: str) -> None:
        self.env_reply, self.texts = env_reply, list[str]()

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the environment's one answer; after the second turn the episode is over."""
        self.texts.append(message.content)
        return [{"role": "user", "content": self.env_reply}] if len(self.texts) == 1 else []

    def outcome(self) -> Mapping[str, Any]:
        """Return the policy's texts, by turn."""
        return {"heard": self.texts}
