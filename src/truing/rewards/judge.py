"""A model as a judge: a reward function that shows it question, reference and response, and reads a score.

The judge's replies are kept on disk under a hash of what was asked, so that grading twice agrees and a
resumed run is exact. A judge that gives no score is an error or, where so declared, costs its group; it is
never a reward of 0.
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
from truing.models.builtin import cache_dir
from truing.rewards.judge_cache import ReplyCache
from truing.rewards.judge_config import JudgeConfig
from truing.rewards.judge_models import Endpoint, LocalModel
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
    """What answers a prompt: an endpoint, or a model that runs here."""

    identity: Mapping[str, Any]  # all that decides the reply, beside the prompt
    attempts: int  # how often it is worth asking

    def reply(self, prompt: str) -> str:
        """The reply; ``JudgeUnavailable`` where another attempt might have one."""
        ...


class Judge:
    """A reward function in [0, 1]: the judge's score of a response ÷ 10."""

    def __init__(self, config: JudgeConfig, reference: Callable[[Task], str]) -> None:
        """Make a judge; ``reference`` gives the right answer to a task, as the judge is to read it."""
        self.config, self.reference = config, reference
        self._model = _judge_model(config)
        self._replies = ReplyCache(Path(config.cache or cache_dir() / "judge.sqlite").expanduser())

    def __call__(self, rollout: Rollout, task: Task) -> float:
        """Judge what the policy said last.

        Raises:
            JudgeUnavailable: There is no score, and ``on_unavailable`` is "error".
            SkipGroup: There is no score, and ``on_unavailable`` is "skip".
        """
        asked = "\n\n".join(message["content"] for message in task.messages if message["role"] == "user")
        prompt = Template(self.config.prompt).substitute(
            question=asked, reference=self.reference(task), response=without_reasoning(rollout.text)
        )
        request = json.dumps({**self._model.identity, "prompt": prompt}, sort_keys=True)
        key = hashlib.sha256(request.encode()).hexdigest()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._replies.add(key, request, self._ask(prompt))
        return read_score(reply) / MAX_SCORE

    def _ask(self, prompt: str) -> str:
        """A reply that holds a score."""
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
        if self.config.on_unavailable == "error":
            raise failure
        raise SkipGroup("a group is skipped, since the judge gave no score", got=failure) from failure


def read_score(reply: str) -> float:
    r"""The score in [0, 10] on the last line of a reply.

    >>> read_score("The year is wrong.\n**Score: 2/10**")
    2.0

    Raises:
        JudgeUnavailable: The last line is not a score in this range.
    """
    lines = reply.strip().splitlines()
    match = _SCORE.fullmatch(lines[-1]) if lines else None
    if match is None or float(match[1]) > MAX_SCORE:
        raise JudgeUnavailable(
            "the judge's reply holds no score",
            got=repr(reply if len(reply) <= 300 else "[…] " + reply[-300:]),
            expected=f'a last line "Score: N" with N from 0 to {MAX_SCORE}',
            remedy="ask for it in judge.prompt, raise judge.max_tokens, or take another model",
        )
    return float(match[1])


def _judge_model(config: JudgeConfig) -> JudgeModel:
    """Who is asked: an endpoint, or a model that runs here."""
    return LocalModel(config) if config.base_url is None else Endpoint(config)
