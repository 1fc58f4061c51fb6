"""MSK008: Demonstrations do not teach how to stop.

What: The stop at the end of a demonstrated turn is not under the supervised loss, or the demonstration has
none.

Why it is silent: The loss falls as it should, since one token in many is missing. Only in sampling does the
policy continue to the limit. Then the limit is raised, or the reward gets a penalty for length.

How it is measured: The rule looks up the last token of each trained demonstrated turn among the sampler's
stop ids. It must be one of them, and be trained. A stop directly after the turn, as part of the template,
counts as untrained.

Healthy look-alikes: Rejection sampling may keep a cut answer: it has no stop. A grammar may have forced the
stop of a kept answer. A single demonstration that was cut to fit is only suspect.

Fix: Let the demonstrated ids be those that the policy would sample, including its stop. If the stop ids of
template and sampler differ, add the template's to the sampler's.

References: https://github.com/huggingface/trl/issues/1623, https://github.com/verl-project/verl/issues/535
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.oracle.token_gradients import expected_token_gradients
from truing.doctor.rule import Rule
from truing.doctor.rules.msk007 import demonstrated_step
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason
from truing.types.token import Origin

VARIED = 3
"""The most lengths of turns that a limit cut: the limit of the turn or of the sample."""


class Ends(NamedTuple):
    """Demonstrated turns, and their ends."""

    untrained_N: Tensor  # [N] bool: untrained stops
    endless_N: Tensor  # [N] bool: last tokens of turns without a stop
    turns: int
    lengths: int  # different lengths of the endless turns, or of their samples, the smaller


def _ends(step: Step) -> Ends:
    """Check the end of each trained turn that was not cut."""
    origin_N, trained_N = step.tokens["origin"], step.tokens["supervised_mask"]
    stop_N = torch.isin(step.tokens["token_ids"], torch.tensor(step.setup.stop_ids or ()))
    untrained_N = torch.zeros(len(step.sample_of_token), dtype=torch.bool)
    endless_N = untrained_N.clone()
    turns, of_turns, of_rows = 0, set[int](), set[int]()
    for _, row, part in step.slices():
        for turn in row.turns:
            first, last = part.start + turn.start, part.start + turn.end - 1
            cut = turn.finish_reason == FinishReason.LENGTH or (row.truncated and turn is row.turns[-1])
            if cut or origin_N[last] != Origin.DEMO or not trained_N[first : last + 1].any():
                continue
            turns += 1
            stops = stop_N[first : last + 1].nonzero()[:, 0]
            if len(stops):  # after the last one a template may write a line break
                untrained_N[first + stops[-1]] = not trained_N[first + stops[-1]]
            elif last + 1 < part.stop and stop_N[last + 1]:
                untrained_N[last + 1] = not trained_N[last + 1]
            else:
                endless_N[last] = True
                of_turns.add(turn.end - turn.start)
                of_rows.add(part.stop - part.start)
    return Ends(untrained_N, endless_N, turns, min(len(of_turns), len(of_rows)))


def judge(step: Step) -> Iterator[Claim]:
    """Claim untrained stops; turns without any may have been cut."""
    ends = _ends(step)
    if untrained := places(step, ends.untrained_N):
        yield _claim(
            Verdict.PROVEN,
            f"{untrained.tokens} of {ends.turns} demonstrated turns end in an untrained stop",
            untrained,
        )
    if endless := places(step, ends.endless_N):
        every = endless.tokens == ends.turns and ends.lengths >= VARIED
        yield _claim(
            Verdict.PROVEN if every else Verdict.SUSPECT,
            f"{endless.tokens} of {ends.turns} demonstrated turns have no stop at their end",
            endless,
        )


def _claim(verdict: Verdict, what: str, where: Places) -> Claim:
    return Claim(
        verdict,
        what,
        got=str(where),
        expected="one of the sampler's stop ids, trained like the tokens before it",
        **where.claim_fields,
        specificity=3,
    )


def _with_gradients(step: Step) -> Step:
    gradient_N = expected_token_gradients(step).float()
    return changed_step(
        step, token_gradient=gradient_N.masked_fill(~step.tokens["supervised_mask"], torch.nan)
    )


def example() -> Step:
    """Labels are −100 at every pad id, which is the stop id too."""
    healthy = demonstrated_step()
    stops_N = torch.isin(healthy.tokens["token_ids"], torch.tensor(healthy.setup.stop_ids or ()))
    return _with_gradients(
        changed_step(healthy, supervised_mask=healthy.tokens["supervised_mask"] & ~stops_N)
    )


def cut_answer_kept() -> Step:
    """Rejection sampling kept an answer cut at the limit."""
    step = demonstrated_step()
    ids_N = step.tokens["token_ids"].clone()
    ids_N[step.starts[2] + step.lengths[2] - 1] = 31
    cut = {
        "truncated": True,
        "status": "truncated",
        "turns": (TurnSpan(4, step.lengths[2], FinishReason.LENGTH, 0, "a"),),
    }
    return changed_step(step, samples={2: cut}, token_ids=ids_N, setup={"algo": "rft"})


RULE = Rule(
    code="MSK008",
    name="demonstration-stop-not-trained",
    kind="E",
    needs=("token_ids", "origin", "supervised_mask", "sample.turns", "setup.stop_ids"),
    taints=("sft",),
    applies=lambda step: step.setup.stop_ids != (),
    judge=judge,
    example=example,
    lookalikes=(cut_answer_kept,),
)
