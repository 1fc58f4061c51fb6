"""MSK005: Tokens after the end of a turn are trained.

What: Within a turn, tokens after its first stop token are under the loss.

Why it is silent: Tokens after a stop are padding, or samples that no component stopped. The reward is that
of the answer before them. The tokens after it get the same advantage and dilute every mean. If padding
counts, all answers are as long as the longest.

How it is measured: The rule finds the first stop id in each turn. No token after it may be under the policy
loss, up to the next message of another role.

Healthy look-alikes: An agent's sample has several turns, and a stop id ends each. A stop id in the prompt or
in a tool's answer. The stop itself is trained. Before `min_new_tokens` the sampler can sample no stop.

Fix: Cut each answer after its first stop before samples are joined. Take lengths from the sampler and not
from the width of a padded batch.

References: https://github.com/bingreeky/MemGen/pull/33, https://github.com/huggingface/trl/issues/2892
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import STOP_ID, example_step, with_token_gradients
from truing.doctor.rule import Rule
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason
from truing.types.token import Excluded, Origin
from truing.utils.format import with_count

OTHERS = torch.tensor([Origin.PROMPT, Origin.TEMPLATE, Origin.TOOL])
"""Origins between two turns."""


def _after_stops(step: Step) -> tuple[Tensor, Tensor]:
    """Return the tokens after the first stop of their turn, and those that repeat it: [N] bool each."""
    tokens, ids_N = step.tokens, step.tokens["token_ids"]
    behind_N = torch.zeros(len(step.sample_of_token), dtype=torch.bool)
    again_N = behind_N.clone()
    stop_N = torch.isin(ids_N, torch.tensor(step.setup.stop_ids or ()))
    others_N = torch.isin(tokens["origin"].long(), OTHERS) if "origin" in tokens else behind_N.clone()
    for _, row, part in step.slices():
        for turn in row.turns:
            first, end = part.start + turn.start, part.start + turn.end
            stops = stop_N[first:end].nonzero()[:, 0]
            if not len(stops):
                continue
            after = first + int(stops[0]) + 1
            breaks = others_N[after:end].nonzero()[:, 0]
            until = after + int(breaks[0]) if len(breaks) else end
            behind_N[after:until] = True
            again_N[after:until] = torch.cumprod((ids_N[after:until] == ids_N[after - 1]).long(), 0).bool()
    return behind_N, again_N


def judge(step: Step) -> Iterator[Claim]:
    """Claim sampled tokens after a stop; a stop inside a demonstration is ambiguous."""
    behind_N, again_N = _after_stops(step)
    policy_N = behind_N & step.tokens["policy_mask"]
    # demonstrations of several turns, or with a template's line break, have other tokens after a stop
    supervised_N = again_N & step.tokens.get("supervised_mask", torch.zeros_like(behind_N))
    again_n = again_N[policy_N | supervised_N].double()
    repeats = f", {float(again_n.mean()):.0%} of them the stop again" if again_n.any() else ""
    for wrong_N, loss, verdict in (
        (policy_N, "policy", Verdict.PROVEN),
        (supervised_N, "supervised", Verdict.SUSPECT),
    ):
        if where := places(step, wrong_N):
            yield Claim(
                verdict,
                f"the {loss} loss trains {with_count(where.tokens, 'token')} after the stop of"
                f" their turn{repeats}",
                got=str(where),
                expected="nothing after the first stop of a turn",
                **where.claim_fields,
                specificity=3,
            )


def example() -> Step:
    """Two answers are padded to the longest with their stop, and the padding counts as tokens."""
    healthy = example_step(answers=(5, 5, 5, 5, 5, 5, 5, 5))
    ids = healthy.tokens["token_ids"].clone()
    ids[
        ((healthy.sample_of_token == 1) | (healthy.sample_of_token == 5)) & (healthy.position_in_sample >= 6)
    ] = STOP_ID
    return changed_step(healthy, token_ids=ids)


def two_turns() -> Step:
    """Every rollout has two turns, a tool answers in between, and a stop ends each turn."""
    step = example_step(answers=(9,) * 8)
    tool_N, template_N = step.position_in_sample == 7, step.position_in_sample == 8
    between_N = tool_N | template_N
    ids_N = step.tokens["token_ids"].clone()
    ids_N[(step.position_in_sample == 6) | template_N] = STOP_ID  # the template's stop belongs to no turn
    origin_N = step.tokens["origin"].masked_fill(tool_N, Origin.TOOL).masked_fill(template_N, Origin.TEMPLATE)
    turns = (TurnSpan(4, 7, FinishReason.TOOL, 0, "a"), TurnSpan(9, 13, FinishReason.STOP, 0, "a"))
    numbers = ("sampler_logprob", "old_logprob", "new_logprob", "advantage")
    streams = {name: step.tokens[name].masked_fill(between_N, torch.nan) for name in numbers}
    streams |= {name: step.tokens[name] & ~between_N for name in ("policy_mask", "kl_mask")}
    streams["excluded"] = step.tokens["excluded"].masked_fill(between_N, Excluded.NOT_SAMPLED)
    rows = {index: {"turns": turns} for index in range(8)}
    return with_token_gradients(
        changed_step(step, samples=rows, token_ids=ids_N, origin=origin_N, tokens=streams)
    )


RULE = Rule(
    code="MSK005",
    name="trained-after-stop",
    kind="E",
    needs=("token_ids", "policy_mask", "sample.turns", "setup.stop_ids"),
    taints=("sft", "policy"),
    applies=lambda step: step.setup.stop_ids != (),
    judge=judge,
    example=example,
    lookalikes=(two_turns,),
)
