"""OPT019: The adapter's dropout is not the declared one.

What: A recipe declares dropout, and layers of the adapter train without it, or with another probability. Or
two optimizer steps drop the same entries.

Why it is silent: Dropout is random, so no two losses are expected to be equal. Without it the adapter
overfits sooner; with the same entries each time, a part of it never trains.

How it is measured: At the backward passes of each optimizer step, the mode and the probability of each
layer's dropout, and the seed of its random numbers, which no earlier optimizer step of the stage may have
had.

Healthy look-alikes: Log-probabilities are computed without dropout, and a model's own dropout is off: the
sampler has none. A pass that is repeated with smaller micro-batches has the seed of the first.

Fix: Set the adapter to training mode before the backward passes, and seed each optimizer step by its place in
the run.

References: https://arxiv.org/abs/1207.0580, https://arxiv.org/abs/2106.09685
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim layers without the declared dropout, and seeds that repeat."""
    dropout = step.facts["dropout"]
    if dropout["count"]:
        layers = with_count(dropout["layers"], "layer")
        yield Claim(
            Verdict.PROVEN,
            f"{dropout['count']} of {layers} of the adapter train without the declared dropout, such as"
            f" {dropout['off'][0]}",
            got="dropout is off, or has another probability",
            expected="the declared probability, in training mode",
            specificity=3,
        )
    earlier = {seed for past in step.past_of_stage for seed in past.facts.get("dropout", {}).get("seeds", ())}
    seeds = dropout["seeds"]
    if repeated := [seed for i, seed in enumerate(seeds) if seed in earlier or seed in seeds[:i]]:
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(len(repeated), 'optimizer step drops', 'optimizer steps drop')} the same entries as"
            " an earlier one",
            got=f"seed {repeated[0]} again",
            expected="another seed for each optimizer step of the stage",
            specificity=3,
        )


def _with_seeds(*seeds: str, count: int = 0) -> Step:
    """Return a step with these seeds, after one with seed "1"."""
    fact = {"layers": 14, "off": ["layers.0.q_proj"] * bool(count), "count": count, "seeds": [*seeds]}
    past = past_step(0, facts={"dropout": {"layers": 14, "off": [], "count": 0, "seeds": ["1"]}})
    return changed_step(example_step(), facts={"dropout": fact}, past=[past])


def example() -> Step:
    """No layer is in training mode."""
    return _with_seeds("2", "3", count=14)


def repeated() -> Step:
    """The seed does not depend on the step."""
    return _with_seeds("2", "1")


def declared() -> Step:
    """Dropout in all layers, with other seeds."""
    return _with_seeds("2", "3")


RULE = Rule(
    code="OPT019",
    name="dropout-not-as-declared",
    kind="E",
    needs=("facts.dropout",),
    taints=("sft", "policy"),
    applies=lambda step: step.setup.dropout is True or "dropout" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(declared,),
)
