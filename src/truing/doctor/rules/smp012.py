"""SMP012: The trainer does not compute along the engine's expert routes.

What: In a mixture of experts each token takes the experts that a router selects. The engine returns which,
and the trainer takes the same ones with scores of its own. Here the routes on record are those of another
token or sample, or the trainer takes others, or their scores are not the router's.

Why it is silent: Each forward is a valid one, along other experts. Ratios differ from 1 as they do by
staleness, and training collapses later. An expert that the router would not select, and whose score is read
after the others were set to 0, gets no gradient at all.

How it is measured: The checked rows are computed one by one. The trainer's own selection of experts for their
sampled tokens is compared with the record, also shifted by a token, and with the records of the other rows.
What its routers return along the record is compared with it, and their scores with the router's own formula,
which is found on its own selection.

Healthy look-alikes: An engine that rounds otherwise selects other experts near ties, for a tenth of the
tokens in bfloat16; placed otherwise the record fits worse. A router with nearly equal probabilities. In
another precision than float32 on a CPU nothing is proof. The rule does not apply to an engine that returns no
routes.

Fix: Index routes as ids are: row t belongs to token t, and the last sampled token has none until the next
turn is computed. Gather the scores at the recorded ids from the probabilities of all experts.

References: https://github.com/NVIDIA/Megatron-LM/issues/4168, https://arxiv.org/abs/2510.11370
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

FEW = 8
"""The fewest sets of experts for a claim."""

MANY, BETTER = 0.5, 0.25
"""Share of sets that differ, and the part of it that may remain if the record is placed otherwise."""

SCORES = {"cpu": 1e-3}
"""Relative difference of scores that rounding explains, by device and precision; 0.1 in others."""

PLACES = {
    "before": "each token has the routes of the token before it",
    "after": "each token has the routes of the token after it",
    "other": "rows have the routes of other samples",
}


class Measured(NamedTuple):
    """Shares of sets of experts that differ from the record."""

    record: Mapping[str, float]  # of the trainer's own selection, by place
    replay: Mapping[str, float]  # of what the trainer takes along the record, by place
    scores: float  # largest relative difference of scores along the record from the router's formula
    rounding: float  # of the trainer's own selection under random rounding
    device: str


def measure(step: Step) -> Measured:
    """Read the comparison recorded with the update."""
    routes = step.facts["routes"]
    return Measured(
        routes["record"], routes["replay"], routes["scores"], routes["rounding"], routes["device"]
    )


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim routes that are not replayed, then those that are recorded at another place."""
    certain = Verdict.PROVEN if measured.device == "cpu" else Verdict.SUSPECT
    if measured.replay["sets"] >= FEW and measured.replay["here"] > 0:
        yield _claim(certain, "the trainer does not take the experts on record", measured.replay)
    elif measured.scores > SCORES.get(measured.device, 0.1):
        yield Claim(
            certain,
            "scores of replayed experts are not their router's, as if they were read after a selection",
            got=f"a relative difference of {measured.scores:.2g}",
            expected="the router's score of each recorded expert, whether it would select it or not",
            specificity=3.5,
        )
    if measured.record["sets"] >= FEW and measured.record["here"] > max(MANY, 2 * measured.rounding):
        place = _better_place(measured.record)
        verdict = certain if place else Verdict.SUSPECT
        yield _claim(verdict, "the routes on record are not those of their tokens", measured.record)


def _claim(verdict: Verdict, what: str, shares: Mapping[str, float]) -> Claim:
    place = _better_place(shares)
    cause = f": {PLACES[place]}" if place else ""
    placed = f", {shares[place]:.0%} if placed otherwise" if place else ""
    return Claim(
        verdict,
        what + cause,
        got=f"{shares['here']:.0%} of {shares['sets']:.0f} sets of experts differ{placed}",
        expected="the same sets, but for near ties",
        specificity=3.5,
    )


def _better_place(shares: Mapping[str, float]) -> str:
    """Return the place whose record fits; "" if none does."""
    known = {name: shares[name] for name in PLACES if name in shares}
    best = min(known, key=lambda name: known[name])
    return best if known[best] <= BETTER * shares["here"] else ""


FITS = {"sets": 60.0, "here": 0.0, "before": 0.9, "after": 0.9, "other": 0.9}


def _routed(**known: object) -> Step:
    routes = {"record": FITS, "replay": FITS, "scores": 2e-7, "rounding": 0.0, "device": "cpu"} | known
    return changed_step(example_step(), facts={"routes": routes})


def example() -> Step:
    """The routes are shifted by one token between engine and record."""
    return _routed(record=FITS | {"here": 0.9, "before": 0.02})


def near_ties() -> Step:
    """An engine in bfloat16 selects other experts for a sixth of the tokens."""
    return _routed(record=FITS | {"here": 0.16}, rounding=0.1, device="cuda, torch.bfloat16", scores=4e-3)


def almost_equal() -> Step:
    """Routers with nearly equal probabilities: rounding decides."""
    return _routed(record=FITS | {"here": 0.6}, rounding=0.5)


RULE = Rule(
    code="SMP012",
    name="routes-not-replayed",
    kind="M",
    needs=("facts.routes",),
    taints=("policy",),
    applies=lambda step: "record" in step.facts.get("routes", {}),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(near_ties, almost_equal),
)
