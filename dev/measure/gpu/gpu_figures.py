"""The figures of a session: where each goes in docs/benchmarks.md, and the aim beside it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dev.measure.gpu.gpu_results import Results

PAGE = "docs/benchmarks.md#on-a-gpu"


@dataclass(frozen=True)
class Figure:
    """A row of the table in docs/benchmarks.md; ``value`` reads it from the results of its parts."""

    row: str
    parts: tuple[str, ...]
    value: Callable[..., Any]
    aim: str = ""


def _agree(part: str, row: str) -> Figure:
    return Figure(row, (part,), lambda found: "yes" if found["all_agree"] else "no", "yes")


def _memory(part: str, row: str, measured: str, predicted: str) -> Figure:
    return Figure(row, (part,), lambda found: round(found[measured] / found[predicted], 2))


def _times(prompts: str, aim: str) -> Figure:
    """TRL ÷ Truing: above 1 Truing is faster."""
    return Figure(
        f"step at prompts of {prompts}, TRL ÷ Truing",
        (f"speed.{prompts}.truing", f"speed.{prompts}.trl"),
        lambda truing, trl: round(trl["step"] / truing["step"], 2),
        aim,
    )


def _share(row: str, names: tuple[str, ...], aim: str = "") -> Figure:
    """Sum of shares of a step at 4B; None where one is not known."""
    return Figure(
        row,
        ("speed.4b",),
        lambda found: round(sum(found[name] for name in names), 4) if found.keys() >= set(names) else None,
        aim,
    )


FIGURES = (
    _agree("correctness.gradients", "gradients of tree, padded rows and transformers agree"),
    _agree("correctness.sampler", "log-probabilities of sampler and trainer agree"),
    _agree("correctness.graphs", "captured and plain steps agree"),
    _memory("speed.4b", "held by a LoRA run at 4B ÷ predicted by shapes", "held", "by_shapes"),
    _memory("speed.4b", "peak of a LoRA run at 4B ÷ predicted", "peak", "predicted"),
    _memory("memory.7b", "held by a LoRA run at 7B ÷ predicted by shapes", "held", "by_shapes"),
    _memory("memory.7b", "peak of a LoRA run at 7B ÷ predicted", "peak", "predicted"),
    _times("1k", "≥ 1.5"),
    _times("4k", "≥ 4"),
    Figure(
        "peak memory at prompts of 4k, Truing ÷ TRL",
        ("speed.4k.truing", "speed.4k.trl"),
        lambda truing, trl: round(truing["peak_memory"] / trl["peak_memory"], 2),
        "≤ 0.5",
    ),
    _share("MFU of the learner at 4B", ("mfu",), "≥ 0.45"),
    _share("learner at 4B ÷ measured rate of products", ("share_of_products",)),
    _share("doctor and record, share of a step at 4B", ("doctor", "record"), "≤ 0.02"),
    _share("publication, share of a step at 4B", ("publication",), "≤ 0.01"),
    Figure("findings of the doctor in a short training", ("training",), lambda found: found["findings"], "0"),
)


def lines(results: Results) -> Iterator[str]:
    """Yield a line per figure: the row that it fills, the measured value or what is missing, and the aim."""
    yield f"rows of the table in {PAGE}; an aim is no result"
    if results.is_toy:
        yield "toy sizes: none of these is a figure of a GPU"
    for figure in FIGURES:
        found = [results.of(part) for part in figure.parts]
        missing = [part for part, result in zip(figure.parts, found, strict=True) if result is None]
        value = None if missing else figure.value(*found)
        measured = f"measured {value}"
        if missing:
            measured = f"not measured ({', '.join(missing)})"
        elif value is None:
            measured = "not known for this card"
        yield f"  {figure.row}: {measured}" + (f"; aim {figure.aim}" if figure.aim else "")
