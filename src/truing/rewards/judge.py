"""A model as a judge: a reward function that prompts it with question, reference and response.

The judge's replies are cached on disk under a hash of the request, so that grading is deterministic and a
resumed run is exact. A judge without a score is an error or, if so declared, skips the group; it is never a
reward of 0.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any, Protocol

from truing.errors import JudgeUnavailable, SkipGroup
from truing.rewards.judge_cache import ReplyCache
from truing.rewards.judge_config import JudgeConfig
from truing.rewards.text_match import without_reasoning
from truing.types.rollout import Rollout, Task

MAX_SCORE = 10
"""The score that becomes a reward of 1."""

_SCORE = re.compile(
    r"[\s*#_`>\"(\[]*(?:(?:my|the|final|overall|total)\s+)*score(?:\s+is)?[\s*:=_`\"(\[]*"
    r"(\d+(?:\.\d+)?)(?:\s*(?:/|out\s+of)\s*10(?:\.0)?)?(?:\s*points?)?[\s*.!_`\")\]]*",
    re.IGNORECASE,
)


class JudgeModel(Protocol):
    """A model that replies to a prompt: an endpoint, or a local model."""

    identity: Mapping[str, Any]  # everything but the prompt that determines the reply
    attempts: int  # the largest number of requests per prompt

    def reply(self, prompt: str) -> str:
        """Return the reply; ``JudgeUnavailable`` if a retry may help."""
        ...


class Judge:
    """A reward function in [0, 1]: the judge's score of a response ÷ 10."""

    def __init__(self, config: JudgeConfig, reference: Callable[[Task], str]) -> None:
        """Make a judge; ``reference`` returns the right answer to a task, as text for the judge."""
        from truing.models.builtin import cache_dir  # here: environments without a judge load no model

        self.config, self.reference = config, reference
        self._model = _judge_model(config)
        self._replies = ReplyCache(Path(config.cache or cache_dir() / "judge.sqlite").expanduser())

    def __call__(self, rollout: Rollout, task: Task) -> float:
        """Return the reward of the policy's last turn.

        Raises:
            JudgeUnavailable: The judge gives no score, and ``on_unavailable`` is "error".
            SkipGroup: The judge gives no score, and ``on_unavailable`` is "skip".
        """
        question = "\n\n".join(message["content"] for message in task.messages if message["role"] == "user")
        prompt = Template(self.config.prompt).substitute(
            question=question, reference=self.reference(task), response=without_reasoning(rollout.text)
        )
        request = json.dumps({**self._model.identity, "prompt": prompt}, sort_keys=True)
        key = hashlib.sha256(request.encode()).hexdigest()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._replies.add(key, request, self._request(prompt))
        return read_score(reply) / MAX_SCORE

    def _request(self, prompt: str) -> str:
        """Return a reply with a score."""
        failure: JudgeUnavailable | None = None
        for attempt in range(self._model.attempts):
            try:
                reply = self._model.reply(prompt)
                read_score(reply)
            except JudgeUnavailable as error:
                failure = error
                if attempt + 1 < self._model.attempts:
                    time.sleep(self.config.backoff * 2**attempt)
            else:
                return reply
        assert failure is not None  # there is an attempt
        if self.config.on_unavailable == "error":
            raise failure
        raise SkipGroup("the judge gave no score, so the group is skipped", got=failure) from failure


def read_score(reply: str) -> float:
    r"""Return the score in [0, 10] on the last line of a reply.

    >>> read_score("The year is wrong.\n**Score: 2/10**")
    2.0

    Raises:
        JudgeUnavailable: The last line is not a score in this range.
    """
    lines = reply.strip().splitlines()
    match = _SCORE.fullmatch(lines[-1]) if lines else None
    if match is None or float(match[1]) > MAX_SCORE:
        raise JudgeUnavailable(
            "the judge's reply has no score",
            got=repr(reply if len(reply) <= 300 else "[…] " + reply[-300:]),
            expected=f'a last line "Score: N" with N from 0 to {MAX_SCORE}',
            remedy="request it in judge.prompt, raise judge.max_tokens, or use another model",
        )
    return float(match[1])


def _judge_model(config: JudgeConfig) -> JudgeModel:
    """Return the judge's model: an endpoint, or a local model."""
    from truing.rewards.judge_models import Endpoint, LocalModel

    return LocalModel(config) if config.base_url is None else Endpoint(config)
