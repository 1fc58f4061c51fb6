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
another precision than float32 a record is proof only if 32 sets were compared and another place fits, and
scores only if they are a quarter off. The rule does not apply to an engine that returns
no routes.

Fix: Index routes as ids are: row t belongs to token t, and the last sampled token has none until the next
turn is computed. Gather the scores at the recorded ids from the probabilities of all experts.

References: https://github.com/NVIDIA/Megatron-LM/issues/4168, https://arxiv.org/abs/2510.11370
"""

from collections.abc import Iterator, Mapping

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.route_difference import PLACES, better_place, route_difference
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim routes that are not replayed, then those that are recorded at another place."""
    measured = route_difference(step)
    if measured.are_not_replayed:
        yield _claim(
            measured.is_certain(measured.replay),
            "the trainer does not take the experts on record",
            measured.replay,
        )
    elif measured.have_other_scores:
        yield Claim(
            Verdict.PROVEN if measured.are_scores_certain() else Verdict.SUSPECT,
            "scores of replayed experts are not their router's, as if they were read after a selection",
            got=f"a relative difference of {measured.scores:.2g}",
            expected="the router's score of each recorded expert, whether it would select it or not",
            specificity=3.5,
        )
    if measured.are_of_other_tokens:
        certain = measured.is_certain(measured.record) and bool(better_place(measured.record))
        yield _claim(certain, "the routes on record are not those of their tokens", measured.record)


def _claim(certain: bool, what: str, shares: Mapping[str, float]) -> Claim:
    place = better_place(shares)
    cause = f": {PLACES[place]}" if place else ""
    placed = f", {shares[place]:.0%} if placed otherwise" if place else ""
    return Claim(
        Verdict.PROVEN if certain else Verdict.SUSPECT,
        what + cause,
        got=f"{shares['here']:.0%} of {shares['sets']:.0f} sets of experts differ{placed}",
        expected="the same sets, but for near ties",
        specificity=3.5,
    )


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
    judge=judge,
    example=example,
    lookalikes=(near_ties, almost_equal),
)
