"""A server of another program, and the log-probabilities that it gives of tokens.

vLLM (also as `trl vllm-serve` and others start it) has ``prompt_logprobs``, SGLang ``input_token_logprobs``,
and servers with the legacy form of OpenAI ``echo``. The first of the three that a server answers is used.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truing.errors import EngineError
from truing.utils.http_request import Answer, Connections
from truing.utils.parse import parse_json

LARGEST = 2**28
"""Bytes of an answer."""

Rows = Sequence[Sequence[int]]

LIKELIEST = 5
"""Log-probabilities of a token to ask for."""


class PluginMissingError(EngineError):
    """Raised where Truing does not run inside an engine, or its workers cannot be called."""


class Endpoint:
    """The server at ``url``; ``timeout`` is in seconds, of a request."""

    def __init__(self, url: str, model: str = "", key: str = "", timeout: float = 120.0) -> None:
        self.url, self.model, self.timeout = url.rstrip("/").removesuffix("/v1"), model, timeout
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._connections = Connections(self.url, 4, LARGEST)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def choose_model(self) -> str:
        """Return the name of the model to ask for: the given one, or the only one that the server lists."""
        answer = self._request("GET", "/v1/models")
        names = []
        if answer.status == 200:
            listed = parse_json(answer.body.decode(errors="replace"))
            names = [str(each.get("id")) for each in listed.get("data", ()) if isinstance(each, dict)]
        if self.model and names and self.model not in names:
            raise EngineError(f"{self.url} has no model {self.model}", expected=", ".join(names))
        if not self.model and len(names) > 1:
            raise EngineError(
                f"{self.url} serves several models", got=", ".join(names), remedy="name one with --model"
            )
        self.model = self.model or (names[0] if names else "")
        return self.model

    def scores(self, rows: Rows) -> tuple[list[list[float]], str]:
        """Return the log-probability of each token after those before it, and how the server gave them.

        Rows are sent one by one: with adapters, vLLM's CPU build ends on prompts that are scored together.

        Args:
            rows: ids; the first of each has no log-probability, and is NaN.

        Raises:
            EngineError: the server gives none in any known form, with what it answered to each.
        """
        refused = []
        for name, form in FORMS.items():
            try:
                return [self._scored(form, row) for row in rows], name
            except ValueError as error:
                refused.append(f"{name}: {error}")
        raise EngineError(
            f"{self.url} gives no log-probabilities of given tokens",
            got="; ".join(refused),
            expected="vLLM's prompt_logprobs, SGLang's input_token_logprobs, or echo with logprobs",
        )

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int] | None:
        """Return the ids that the server makes of messages; None if it does not say."""
        body = {"model": self.model, "messages": list(messages), "max_tokens": 1, "return_token_ids": True}
        answer = self._request("POST", "/v1/chat/completions", json=body)
        if answer.status != 200:
            return None
        ids = parse_json(answer.body.decode(errors="replace")).get("prompt_token_ids")
        return [int(i) for i in ids] if isinstance(ids, list) and ids else None

    def _scored(self, form: Callable[[str, Rows], "Form"], row: Sequence[int]) -> list[float]:
        """Return the log-probabilities of a row; raise a ValueError if the server does not give them so."""
        path, body, read = form(self.model, [row])
        answer = self._request("POST", path, json=body)
        if answer.status != 200:
            raise ValueError(f"status {answer.status} {answer.text(120)}")
        try:
            (found,) = read(parse_json(answer.body.decode(errors="replace")))
            return _checked(found, row)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__} {error} in {answer.text(120)}") from error

    def next_logprobs(self, prompt: Sequence[int], salt: str) -> dict[int, float]:
        """Return the likeliest ids after a prompt; {} if the server does not say."""
        body = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": 1,
            "temperature": 1.0,
            "logprobs": LIKELIEST,
            "return_tokens_as_token_ids": True,
            **({"cache_salt": salt} if salt else {}),
        }
        answer = self._request("POST", "/v1/completions", json=body)
        if answer.status != 200:
            return {}
        (likeliest,) = parse_json(answer.body.decode(errors="replace"))["choices"][0]["logprobs"][
            "top_logprobs"
        ]
        return {int(name.removeprefix("token_id:")): float(nats) for name, nats in likeliest.items()}

    def call_workers(self, method: str, **arguments: object) -> list[dict[str, Any]]:
        """Call a method of each worker: over Truing's route, or that of vLLM's development mode.

        Raises:
            PluginMissingError: The server has neither, or no plugin of Truing's.
            EngineError: A worker fails.
        """
        call = {"method": method, "arguments": arguments}
        answer = self._request("POST", "/v1/truing", json=call)
        if answer.status in range(400, 500):
            body = {"method": "truing_call", "kwargs": call}
            answer = self._request("POST", "/collective_rpc", json=body)
        if answer.status == 500 and "truing_call" in answer.text(1000):
            raise PluginMissingError(
                "Truing is not installed beside its vLLM, or VLLM_PLUGINS does not name it"
            )
        if answer.status == 500:
            raise EngineError(
                f"a worker of {self.url} fails at a probe",
                got=f"status {answer.status} {answer.text(500)}",
                expected="an answer of each worker",
                remedy="its log has the cause; --outside compares log-probabilities",
            )
        if answer.status != 200:
            raise PluginMissingError(
                f"its workers cannot be called (status {answer.status}): start it with VLLM_PLUGINS=truing or"
                " VLLM_SERVER_DEV_MODE=1"
            )
        return parse_json(answer.body.decode())["results"]

    def _request(self, method: str, path: str, **options: Any) -> Answer:
        try:
            return self._connections.request(method, path, self.timeout, headers=self._headers, **options)
        except (TimeoutError, ConnectionError, ValueError) as error:
            raise EngineError(
                f"no server answers at {self.url}{path}", got=str(error), remedy="check the address"
            ) from error


Form = tuple[str, dict[str, Any], Callable[[Any], list[list[float | None]]]]


def _vllm(model: str, rows: Rows) -> Form:
    body = {
        "model": model,
        "prompt": [list(row) for row in rows],
        "max_tokens": 1,
        "temperature": 1.0,
        "prompt_logprobs": 0,
    }

    def read(answer: Any) -> list[list[float | None]]:
        choices = sorted(answer["choices"], key=lambda each: each["index"])
        return [
            [
                None if by_id is None else by_id[str(token)]["logprob"]
                for token, by_id in zip(row, choice["prompt_logprobs"], strict=True)
            ]
            for row, choice in zip(rows, choices, strict=True)
        ]

    return "/v1/completions", body, read


def _sglang(model: str, rows: Rows) -> Form:
    body = {
        "input_ids": [list(row) for row in rows],
        "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": 0,
    }

    def read(answer: Any) -> list[list[float | None]]:
        return [[each[0] for each in one["meta_info"]["input_token_logprobs"]] for one in answer]

    return "/generate", body, read


def _echo(model: str, rows: Rows) -> Form:
    body = {
        "model": model,
        "prompt": [list(row) for row in rows],
        "max_tokens": 1,
        "temperature": 1.0,
        "echo": True,
        "logprobs": 1,
    }

    def read(answer: Any) -> list[list[float | None]]:
        choices = sorted(answer["choices"], key=lambda each: each["index"])
        return [
            choice["logprobs"]["token_logprobs"][: len(row)]
            for row, choice in zip(rows, choices, strict=True)
        ]

    return "/v1/completions", body, read


FORMS: Mapping[str, Callable[[str, Rows], Form]] = {
    "prompt_logprobs": _vllm,
    "input_token_logprobs": _sglang,
    "echo": _echo,
}
"""The forms of a request, each with its path, body, and the reader of its answer."""


def _checked(scores: Sequence[float | None], row: Sequence[int]) -> list[float]:
    """Return the numbers of a row, NaN at its first token; raise a ValueError if they cannot be those."""
    if len(scores) != len(row):
        raise ValueError(f"{len(scores)} log-probabilities of {len(row)} tokens")
    numbers = [math.nan if score is None else float(score) for score in scores[1:]]
    if any(not number <= 1e-3 for number in numbers):
        raise ValueError("a log-probability that is no number of at most 0")
    return [math.nan, *numbers]
