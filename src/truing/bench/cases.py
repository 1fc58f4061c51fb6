"""What both sides are given to do: the same model, prompts, group, lengths and reward."""

from dataclasses import dataclass

MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Case:
    """A kind of step: so many prompts, each answered ``group_size`` times with exactly ``new_tokens``."""

    name: str
    what: str
    sums: int  # solved sums that each prompt holds before the question
    prompts: int
    group_size: int
    new_tokens: int
    lora: bool

    def texts(self, count: int) -> list[str]:
        """The first ``count`` prompts, all different."""
        return [self._text(i) for i in range(count)]

    def _text(self, i: int) -> str:
        solved = [f"{k} + {7 * k + i} = {8 * k + i}." for k in range(11, 11 + self.sums)]
        return " ".join([*solved, f"What is {i} + {3 * i}?"])


CASES = {
    case.name: case
    for case in (
        Case("short", "prompts of some 40 tokens, all weights", 0, 2, 8, 48, lora=False),
        Case("long", "prompts of more than 700 tokens, LoRA", 55, 1, 8, 48, lora=True),
    )
}


def letters(text: str) -> float:
    """The reward: how many of a text's characters are vowels, so that answers of a group differ."""
    return sum(letter in "aeiou" for letter in text) / max(1, len(text))
