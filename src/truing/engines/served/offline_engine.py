"""A ``vllm.LLM`` of this process: its log-probabilities, and its workers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from truing.engines.served.endpoint import PluginMissingError
from truing.errors import EngineError

LIKELIEST = 5
"""Log-probabilities of a token to ask for."""


class OfflineEngine:
    """The engine of an ``LLM``, as vLLM's users and TRL's colocated trainers have one."""

    def __init__(self, llm: Any) -> None:
        self._llm, self.name = llm, "the LLM"

    def close(self) -> None:
        """Leave the engine as it is."""

    def choose_model(self) -> str:
        """Return the name of its model."""
        return str(self._llm.model_config.model)

    def call_workers(self, method: str, **arguments: object) -> list[dict[str, Any]]:
        """Call a method of each worker.

        Raises:
            PluginMissingError: vLLM has not loaded Truing's plugin.
        """
        try:
            return self._llm.collective_rpc("truing_call", kwargs={"method": method, "arguments": arguments})
        except Exception as error:
            if "truing_call" in str(error):
                raise PluginMissingError(
                    "vLLM has not loaded Truing: if VLLM_PLUGINS is set, it must name truing"
                ) from error
            raise

    def scores(self, rows: Sequence[Sequence[int]]) -> tuple[list[list[float]], str]:
        """Return the log-probability of each token after those before it; NaN of the first."""
        found = []
        for row in rows:
            by_token = self._generate(row, prompt_logprobs=0).prompt_logprobs[1:]
            found.append([math.nan, *(by_id[i].logprob for i, by_id in zip(row[1:], by_token, strict=True))])
        return found, "prompt_logprobs"

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int] | None:
        """Return the ids that its tokenizer makes of messages."""
        ids = self._llm.get_tokenizer().apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return [int(i) for i in ids]

    def next_logprobs(self, prompt: Sequence[int], salt: str) -> dict[int, float]:
        """Return the likeliest ids after a prompt; {} of an engine that sleeps."""
        if self._llm.llm_engine.is_sleeping():
            return {}
        likeliest = self._generate(prompt, salt, logprobs=LIKELIEST).outputs[0].logprobs[0]
        return {i: each.logprob for i, each in likeliest.items()}

    def _generate(self, row: Sequence[int], salt: str = "", **asked: int) -> Any:
        """Return the engine's output for a prompt, under the adapter that was loaded last if there is one.

        One at a time: with adapters, vLLM's CPU build ends on prompts that are scored together.
        """
        try:
            from vllm import SamplingParams  # pyright: ignore
            from vllm.lora.request import LoRARequest  # pyright: ignore
        except ImportError as error:
            raise EngineError("vLLM is not installed", got=error, expected="the vLLM of this LLM") from error
        params = SamplingParams(temperature=1.0, max_tokens=1, detokenize=False, **asked)
        prompt = {"prompt_token_ids": list(row), **({"cache_salt": salt} if salt else {})}
        adapters = self._llm.llm_engine.list_loras() if self._llm.llm_engine.vllm_config.lora_config else ()
        number = max(adapters, default=0)  # it is loaded: the engine reads no folder
        adapter = LoRARequest(f"truing-{number}", number, "loaded") if number else None
        (output,) = self._llm.generate([prompt], params, lora_request=adapter, use_tqdm=False)
        return output
