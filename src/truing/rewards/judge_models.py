"""The models of a judge: an OpenAI-compatible endpoint, or a local model."""

import datetime
import hashlib
import os
from collections.abc import Mapping
from typing import Annotated, Any, cast

import torch
from pydantic import BaseModel, Field, ValidationError
from transformers import GenerationConfig

from truing.chat import make_chat
from truing.chat.apply_template import prompt_date
from truing.chat.render import encode_with_origins
from truing.errors import JudgeUnavailable, RecipeError, RewardError
from truing.models.load import load
from truing.rewards.judge_config import JudgeConfig
from truing.types.token import Origin
from truing.utils.http_request import request

RETRYABLE_STATUS_CODES = {408, 409, 425, 429}
"""Status codes that are worth a retry, in addition to all of 500 and above."""

SHOWN = 300
"""Characters of a reply in an error message."""


class _Message(BaseModel):
    content: str


class _Choice(BaseModel):
    message: _Message


class _Completion(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]


class Endpoint:
    """Chat completions of an OpenAI-compatible server, at temperature 0."""

    def __init__(self, config: JudgeConfig) -> None:
        self._base_url, self._timeout = str(config.base_url), config.timeout
        self._headers = (
            {} if config.api_key_env is None else {"Authorization": f"Bearer {_key(config.api_key_env)}"}
        )
        self._body = {"model": config.model, "temperature": 0, "max_tokens": config.max_tokens}
        self.identity: Mapping[str, Any] = {"base_url": config.base_url, **self._body}
        self.attempts = 1 + config.retries

    def reply(self, prompt: str) -> str:
        """Return the endpoint's reply.

        Raises:
            JudgeUnavailable: The endpoint cannot be reached, fails, or sends no chat completion.
            RewardError: The endpoint refuses the request, which a retry would not change.
        """
        body = {**self._body, "messages": [{"role": "user", "content": prompt}]}
        url = f"{self._base_url.rstrip('/')}/chat/completions"
        try:
            answer = request("POST", url, self._timeout, json=body, headers=self._headers)
        except (OSError, ValueError) as error:
            raise JudgeUnavailable(
                "the judge cannot be reached",
                got=f"{self._base_url}: {error}",
                remedy="check that the endpoint runs and is not overloaded, or raise judge.timeout",
            ) from error
        received = f"{answer.status} {answer.text(SHOWN)!r}"
        if answer.status in RETRYABLE_STATUS_CODES or answer.status >= 500:
            raise JudgeUnavailable(f"the judge at {self._base_url} fails", got=received)
        if not 200 <= answer.status < 300:
            raise RewardError(
                f"the judge at {self._base_url} refuses the request",
                got=received,
                remedy="check judge.base_url, judge.model and judge.api_key_env",
            )
        try:
            return _Completion.model_validate_json(answer.body).choices[0].message.content
        except ValidationError as error:
            raise JudgeUnavailable(
                f"the judge at {self._base_url} sends no chat completion",
                got=received,
                expected="choices, the first with a message and its content",
            ) from error


DATE = datetime.date(2026, 1, 1)
"""Today's date for a model that grades, if its chat template writes one: a fixed one, so that an answer gets
the same score on each day."""


class LocalModel:
    """A local model that decodes greedily; a retry would give the same reply."""

    attempts = 1

    def __init__(self, config: JudgeConfig) -> None:
        self._loaded = load(config.model)
        tokenizer = self._loaded.tokenizer
        date = None if prompt_date(tokenizer, None) is None else DATE
        self._chat = make_chat(tokenizer, self._loaded.stop_ids, date=date)
        self._max_tokens = config.max_tokens
        context = self._loaded.context_length
        if self._max_tokens >= context:
            raise RewardError(
                "judge.max_tokens leaves no room for the judge's prompt",
                got=f"{self._max_tokens}, where its context is {context} tokens",
                expected=f"less than {context} by the length of the prompt",
                remedy="lower judge.max_tokens, or use a judge with a longer context",
            )
        template = self._loaded.tokenizer.get_chat_template()
        self.identity: Mapping[str, Any] = {
            "weights": self._loaded.digest,
            "template": hashlib.sha256(template.encode()).hexdigest(),
            "max_tokens": config.max_tokens,
        }

    @torch.inference_mode()
    def reply(self, prompt: str) -> str:
        """Return the model's reply to the prompt.

        Control tokens in the prompt are encoded as text, so that a response cannot imitate the judge's turn.
        """
        model, tokenizer = self._loaded.model, self._loaded.tokenizer
        rendering = self._chat.render([{"role": "user", "content": prompt}])
        ids, _ = encode_with_origins(self._chat, rendering, None, [Origin.PROMPT])
        prompt_ids = ids[None].to(model.device)
        length = len(ids)
        limit = self._loaded.context_length - self._max_tokens
        if length > limit:
            raise RewardError(
                "the judge's prompt is longer than its context",
                got=f"{length} tokens",
                expected=f"≤ {limit} (context {self._loaded.context_length} − judge.max_tokens)",
                remedy="use a judge with a longer context, or lower judge.max_tokens",
            )
        greedy = GenerationConfig(
            do_sample=False,
            max_new_tokens=self._max_tokens,
            eos_token_id=list(self._loaded.stop_ids),
            pad_token_id=self._loaded.pad_id,
        )
        mask = torch.ones_like(prompt_ids)
        generate = cast("Any", model).generate  # of a mixin, which the models' base class lacks
        generated = generate(input_ids=prompt_ids, attention_mask=mask, generation_config=greedy)
        text = tokenizer.decode(generated[0, length:], skip_special_tokens=True)
        assert isinstance(text, str)  # a list for several rows
        return text


def _key(variable: str) -> str:
    """Return the endpoint's key."""
    key = os.environ.get(variable)
    if not key:
        raise RecipeError(
            "judge.api_key_env names a variable that is not set",
            got=variable,
            expected="an environment variable with the endpoint's key",
        )
    return key
