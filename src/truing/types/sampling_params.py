"""The sampling parameters, as one frozen value."""

from dataclasses import dataclass

from truing.errors import InvalidValueError


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled: one value that sampler, trainer, reference and doctor share.

    Penalties and ``min_new_tokens`` count the ids generated in the current turn and never the
    prompt. ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off.
    There are no stop strings, since ids cannot replay them: give stop ids.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    max_new_tokens: int = 128
    stop_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        limits = {
            "temperature": (self.temperature >= 0, "≥ 0"),
            "top_k": (self.top_k >= 0, "≥ 0"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
            "min_p": (0 <= self.min_p < 1, "in [0, 1)"),
            "repetition_penalty": (self.repetition_penalty > 0, "> 0"),
            "max_new_tokens": (self.max_new_tokens >= 1, "≥ 1"),
            "min_new_tokens": (0 <= self.min_new_tokens <= self.max_new_tokens, "in [0, max_new_tokens]"),
        }
        for name, (holds, expected) in limits.items():
            if not holds:
                raise InvalidValueError(
                    f"sampling.{name} has an invalid value", got=getattr(self, name), expected=expected
                )

    @property
    def truncates_support(self) -> bool:
        """Whether sampling drops tokens from the support, which must then be recorded."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def counts_generated(self) -> bool:
        """Whether the ids generated so far in a turn change what is sampled, other than through the model."""
        penalties = self.presence_penalty, self.frequency_penalty, self.repetition_penalty
        return penalties != (0, 0, 1) or bool(self.min_new_tokens and self.stop_ids)

    def max_prompt_length(self, context_length: int) -> int:
        """Return the largest prompt length, tokens, in a context of ``context_length``; at least 1."""
        if self.max_new_tokens >= context_length:
            raise InvalidValueError(
                "sampling.max_new_tokens leaves no room for a prompt",
                got=f"{self.max_new_tokens}, where the model's context is {context_length} tokens",
                expected=f"less than {context_length} by the length of the longest prompt",
                remedy="lower sampling.max_new_tokens, or take a model with a longer context",
            )
        return context_length - self.max_new_tokens


RAW = SamplingParams()
"""The model's own distribution: demonstrations are scored under it."""
