"""The formulas of ``cluster_model.py`` beside real runs here: predicted ÷ measured seconds by phase.

One model fits the shares of the machine's rates that each phase achieves, and what two ranks add for each
tensor. Two others, with one process and with two ranks, are predicted from these and used for nothing else.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster_generation import simulate
from cluster_model import (
    FLOAT32,
    Controller,
    Rates,
    Shape,
    Work,
    controller_seconds,
    digest_seconds,
    exchange_seconds,
    prefill_seconds,
    publication_seconds,
    token_seconds,
    training_seconds,
    update_seconds,
)
from cluster_runs import (
    Run,
    exchange_rates,
    machine_rates,
    measured_controller,
    measured_steps,
    publication_seconds_per_weight,
)

FIT = Run(Shape("fit", 512, 1536, 4, 8, 4, 64, 259, tied=True), prompts=8, group=4, longest=96, shortest=24)
OTHERS = (
    Run(Shape("wide", 768, 2048, 3, 12, 4, 64, 259, tied=True), prompts=4, group=8, longest=64, shortest=16),
    Run(Shape("deep", 384, 1024, 10, 6, 2, 64, 259, tied=True), prompts=8, group=4, longest=128, shortest=32),
)
TINY = Shape("tiny", 64, 128, 1, 2, 1, 32, 259, tied=True)
SHORT = Run(TINY, prompts=8, group=8, longest=32, shortest=32, steps=5)
MANY = replace(SHORT, prompts=32)
LONG = replace(SHORT, longest=512, shortest=512)
PHASES = ("sync", "prefill", "decode", "training", "optimizer", "record", "doctor", "other", "step")


def check() -> None:
    """Print the machine's rates, what Python costs, the fitted shares, and the ratios of the other models."""
    rates, controller = measured_rates(), measured_controller(SHORT, MANY, LONG)
    print(f"Python: {controller}")
    print(f"publication to vLLM: {publication_seconds_per_weight(OTHERS[1].shape):.3g} s per weight")
    rates = fitted(rates, controller)
    print(f"fitted to the model {FIT.shape.name}: {rates}\n")
    print("predicted ÷ measured processor seconds\n| model | ranks |", " | ".join(PHASES), "|", flush=True)
    for each in OTHERS:
        for ranks in (1, 2):
            run = replace(each, ranks=ranks)
            measured, predicted = compare(run, replace(rates, **machine_rates()), controller)
            cells = [
                f"{predicted[name]:.3f} ÷ {measured[name]:.3f} = {predicted[name] / measured[name]:.2f}"
                for name in PHASES
            ]
            print(f"| {run.shape.name} | {ranks} |", " | ".join(cells), "|", flush=True)


def measured_rates() -> Rates:
    """Return this machine's rates, one thread a rank, with shares of 1."""
    link, gloo = exchange_rates()
    return Rates(
        **machine_rates(),
        memory=0.0,
        link=link,
        gloo=gloo,
        disk=float("inf"),
        chunk=0.0,
        overlap=False,
        number=FLOAT32,
    )


def fitted(rates: Rates, controller: Controller) -> Rates:
    """Return the rates with the shares that one process achieves, and what two add for each tensor."""
    measured, predicted = compare(FIT, rates, controller)
    rates = replace(
        rates,
        train_share=predicted["training"] / measured["training"],
        prefill_share=predicted["prefill"] / measured["prefill"],
        decode_share=predicted["decode"] / measured["decode"],
        update_share=predicted["optimizer"] / measured["optimizer"],
        publication=measured["sync"] / FIT.shape.weights,
    )
    several, expected = compare(replace(FIT, ranks=2), rates, controller)
    tensors = FIT.shape.tensors(FIT.shape.weights)
    # one process digests too, so what it needs beyond the prediction is no exchange
    alone = measured["doctor"] - predicted["doctor"]
    return replace(
        rates,
        tensor_published=max(0.0, several["sync"] - expected["sync"]) / tensors,
        tensor_updated=max(0.0, several["optimizer"] - expected["optimizer"]) / tensors,
        tensor_digested=max(0.0, several["doctor"] - expected["doctor"] - alone) / tensors,
    )


def compare(
    run: Run, rates: Rates, controller: Controller
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return measured and predicted seconds of a run by phase, medians over its steps."""
    measured: list[Mapping[str, float]] = []
    predicted: list[Mapping[str, float]] = []
    for row, lengths, prompt in measured_steps(run):
        seconds = dict(row.seconds)
        seconds["training"] = seconds.pop("forward") + seconds.pop("backward")
        measured.append({name: seconds.get(name, 0.0) for name in PHASES} | {"step": sum(seconds.values())})
        predicted.append(predict(run, lengths, prompt, rates, controller))
    return _medians(measured), _medians(predicted)


def _medians(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in steps) for name in PHASES}


def predict(
    run: Run, lengths: Sequence[int], prompt: int, rates: Rates, controller: Controller
) -> dict[str, float]:
    """Return the seconds of a step's phases on the first rank; ``lengths`` are those of all answers."""
    shape, ranks = run.shape, run.ranks
    work = Work(len(lengths), run.prompts, prompt, sum(lengths))
    of_group = [lengths[start : start + run.group] for start in range(0, len(lengths), run.group)]
    sampling = [
        simulate(
            [length for group in of_group[rank::ranks] for length in group],
            prompt,
            run.group,
            places=len(lengths),
            cache=float("inf"),
            step=lambda running, cached: token_seconds(shape, rates, running, cached),
            prefill=lambda prompts: 0.0,
        ).seconds
        for rank in range(ranks)
    ]
    python = controller_seconds(work, controller)
    waiting = max(sampling) - sampling[0]
    phases = {
        "sync": publication_seconds(shape, shape.weights, rates, ranks),
        "prefill": prefill_seconds(shape, rates, run.prompts / ranks, prompt),
        "decode": sampling[0],
        "training": training_seconds(shape, work, rates, ranks, shape.weights),
        "optimizer": update_seconds(shape, shape.weights, rates, ranks),
        "record": python["record"],
        "doctor": python["doctor"] + digest_seconds(shape, shape.weights, rates, ranks),
        "other": python["other"] + exchange_seconds(work, controller, rates, ranks) + waiting,
    }
    return phases | {"step": sum(phases.values())}


if __name__ == "__main__":
    check()
