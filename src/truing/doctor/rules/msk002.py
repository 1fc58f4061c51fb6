"""MSK002: The mask of a loss differs from the declared one.

What: A sampled token that the declared mask policy keeps is not under the policy loss, or one that it drops
is. Or a demonstrated token is not under the supervised loss, or a sampled one not under the KL or value loss.

Why it is silent: The loss, its gradient and the reward all look right with any mask that is not empty. The
policy never learns the missing tokens, and learns the extra ones by mistake.

How it is measured: A second implementation reads origin, scaffolding and turns from the record, and decides
for each sampled token whether "sampled", "no_structure" or "action" keeps it. It compares the recorded mask
token by token. Tokens of cut rollouts are compared where these are declared to be left out. MSK001 covers the
tokens that were not sampled.

Healthy look-alikes: A whole sample without a trained token, with a recorded reason: its rollout failed, a
gate left it out, its reward was too low for rejection sampling, or a gate masks cut rollouts. These reasons
never leave out half of a sample. A turn after forced tokens under "action", scaffolding under "no_structure".

Fix: Compute the mask once, from token origins, when samples are joined, and pass it on unchanged. Look for a
second mask multiplied into it: by ids, by padding, by length.

References: docs/agents.md, https://arxiv.org/abs/1506.02438
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict
from truing.types.passes import PASS_STREAMS, Passes
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason
from truing.types.step_table import starts_of
from truing.types.token import Excluded, Origin
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference: the mask policy decides each token."""
    mask_N, sampled_N = step.tokens["policy_mask"], step.tokens["origin"] == Origin.SAMPLED
    expected_N = declared_mask(step)
    missing_N = expected_N & ~mask_N & ~declared_exclusions(step)
    if step.setup.mask is None:  # any choice of sampled tokens is as declared
        missing_N = torch.zeros_like(mask_N)
    compared, policy = int(sampled_N.sum()), step.setup.mask or "sampled"
    codes = step.tokens["excluded"][missing_N].unique().tolist() if "excluded" in step.tokens else []
    reasons = f" (recorded reason: {', '.join(Excluded(each).name for each in codes)})" if codes else ""

    for wrong_N, what in (
        (missing_N, f"not under the policy loss, and should be{reasons}"),
        (mask_N & sampled_N & ~expected_N, "under the policy loss, and should not be"),
        (_unlearned(step), "demonstrated, and not under the supervised loss"),
        (_uncounted(step), "sampled, and not under the KL or the value loss"),
    ):
        if where := places(step, wrong_N, compared):
            yield Claim(
                Verdict.PROVEN,
                f"{with_count(where.tokens, 'token is', 'tokens are')} {what}: the declared mask is"
                f" {policy!r}",
                got=str(where),
                expected=f"the mask {policy!r} at all {where.compared} sampled tokens",
                **where.claim_fields,
                specificity=1.5,
            )
    if cut := places(step, mask_N & _cut(step)):
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(cut.tokens, 'token of a cut rollout is', 'tokens of cut rollouts are')}"
            " under the policy loss, which is declared to leave them out",
            got=str(cut),
            expected="no token of a cut rollout",
            **cut.claim_fields,
            specificity=1.6,
        )


def _cut(step: Step) -> Tensor:
    """Return the tokens of cut rollouts, if they are declared to be left out: [N] bool."""
    left_out = step.setup.truncated == "mask"
    cut = {row.rollout_id for row in step.samples if row.truncated or row.status == "truncated"}
    cut_B = torch.tensor([left_out and row.rollout_id in cut for row in step.samples], dtype=torch.bool)
    return cut_B[step.sample_of_token]


def _unlearned(step: Step) -> Tensor:
    """Return demonstrated tokens that the supervised loss leaves out, of samples that it trains: [N] bool."""
    out_N = (step.tokens["origin"] == Origin.DEMO) & ~step.tokens["supervised_mask"]
    return out_N & torch.tensor(step.kept)[step.sample_of_token]


def _uncounted(step: Step) -> Tensor:
    """Return sampled tokens that the KL or value loss leaves out, of samples that are kept: [N] bool."""
    sampled_N = step.tokens["origin"] == Origin.SAMPLED
    # others count the tokens under their policy loss; answers that rejection sampling rejects have no loss
    if step.setup.trainer != "truing" or step.setup.algo == "rft":
        return torch.zeros_like(sampled_N)
    masks = [step.tokens[name] for name in ("kl_mask", "value_mask") if name in step.tokens]
    out_N = torch.stack([~mask_N for mask_N in masks]).any(0) if masks else torch.zeros_like(sampled_N)
    left_out_N = step.tokens.get("excluded", torch.zeros_like(step.tokens["origin"])) == Excluded.NOT_KEPT
    return sampled_N & ~left_out_N & out_N & torch.tensor(step.kept)[step.sample_of_token]


def declared_mask(step: Step) -> Tensor:
    """Return the tokens that the declared mask policy keeps, for any end of the rollout: [N] bool."""
    keeps_N = step.tokens["origin"] == Origin.SAMPLED
    if step.setup.mask == "no_structure":
        return keeps_N & ~step.tokens["structure"]
    if step.setup.mask == "action":
        return keeps_N & ~_begun_for_it(step)
    return keeps_N


def _begun_for_it(step: Step) -> Tensor:
    """Return tokens of turns directly after forced ones: [N] bool."""
    begun_N = torch.zeros(len(step.sample_of_token), dtype=torch.bool)
    forced_N = step.tokens["origin"] == Origin.FORCED
    for _, row, part in step.slices():
        before = part.start
        for turn in row.turns:
            first, last = part.start + turn.start, part.start + turn.end
            begun_N[first:last] = bool(forced_N[before:first].any())
            before = last
    return begun_N


def declared_exclusions(step: Step) -> Tensor:
    """Return tokens of samples that the policy loss may leave out: [N] bool."""
    reasons_N = step.tokens.get("excluded")
    cut = {row.rollout_id for row in step.samples if row.truncated or row.status == "truncated"}
    may_be_cut = step.setup.truncated in ("mask", None)
    out_N = torch.zeros(len(step.sample_of_token), dtype=torch.bool)
    for index, row, part in step.slices():
        if step.tokens["policy_mask"][part].any():
            continue
        if reasons_N is None or not step.kept[index]:
            out_N[part] = True
            continue
        out_N[part] = reasons_N[part] == Excluded.NOT_KEPT
        if may_be_cut and row.rollout_id in cut:
            out_N[part] |= reasons_N[part] == Excluded.CUT
    return out_N


def masked(step: Step, off_N: Tensor, why: Excluded) -> Step:
    """Return the step without some tokens in the policy loss, and consistent numbers."""
    was_N = step.tokens["policy_mask"]
    now_N = was_N & ~off_N
    return with_token_gradients(
        changed_step(
            step,
            policy_mask=now_N,
            excluded=torch.where(was_N & off_N, why, step.tokens["excluded"]).to(torch.uint8),
            advantage=step.tokens["advantage"].masked_fill(~now_N, torch.nan),
        )
    )


def example() -> Step:
    """The mask begins two tokens late."""
    healthy = example_step()
    return masked(
        healthy, (healthy.position_in_sample >= 4) & (healthy.position_in_sample < 6), Excluded.STRUCTURE
    )


def without_structure() -> Step:
    """The mask policy leaves out scaffolding."""
    step = example_step(setup={"mask": "no_structure"})
    structure_N = step.position_in_sample == 4
    return masked(changed_step(step, structure=structure_N), structure_N, Excluded.STRUCTURE)


def some_begun() -> Step:
    """Every second rollout begins with a forced token; the mask is "sampled"."""
    step = example_step(prompt=5, rewards=(1.0, 0.0, 0.0, 1.0) * 2)
    odd_row_N, last_N = step.sample_of_token % 2 == 1, step.position_in_sample == 4
    origin_N = torch.where(odd_row_N & last_N, Origin.FORCED, step.tokens["origin"]).to(torch.uint8)
    keep_N = odd_row_N | ~last_N
    rows = []
    for index, row in enumerate(step.samples):
        prompt, end = (5, step.lengths[index]) if index % 2 else (4, step.lengths[index] - 1)
        prompt_hash = f"{row.prompt_hash}{' and a forced token' * (index % 2)}"
        turn = replace(row.turns[0], start=prompt, end=end)
        rows.append(replace(row, prompt_length=prompt, turns=(turn,), prompt_hash=prompt_hash))
    kept = {name: stream_N[keep_N] for name, stream_N in {**step.tokens, "origin": origin_N}.items()}
    streams = {name: stream_N for name, stream_N in kept.items() if name not in PASS_STREAMS}
    passes = Passes.one_each(len(rows), {name: kept[name] for name in PASS_STREAMS if name in kept})
    starts = starts_of([row.turns[0].end for row in rows])
    return replace(step, samples=rows, starts=starts, streams=streams, passes=passes)


def begun_with_forced_tokens() -> Step:
    """Every second rollout begins with a forced token, and "action" leaves its turn out."""
    step = changed_step(some_begun(), setup={"mask": "action"})
    return masked(step, step.sample_of_token % 2 == 1, Excluded.FORCED_ACTION)


def cut_ones_masked() -> Step:
    """A gate masks cut rollouts."""
    step = example_step(answers=(4, 8, 5, 4, 4, 3, 4, 5), setup={"truncated": "mask"})
    ids_N = step.tokens["token_ids"].clone()
    ids_N[(step.sample_of_token == 1) & (step.position_in_sample == step.lengths[1] - 1)] = 30
    span = TurnSpan(4, step.lengths[1], FinishReason.LENGTH, 0, "a")
    cut = {"truncated": True, "status": "truncated", "turns": (span,)}
    return masked(
        changed_step(step, token_ids=ids_N, samples={1: cut}), step.sample_of_token == 1, Excluded.CUT
    )


def a_group_left_out() -> Step:
    """The trainer left out one group, which is in the record alone."""
    step = example_step(rewards=(0.0,) * 4 + (1.0, 0.0, 0.0, 1.0), setup={"equal_groups": "drop"})
    return masked(
        with_optimizer_steps(step, dict.fromkeys(range(4), -1)),
        step.sample_of_token < 4,
        Excluded.NOT_KEPT,
    )


RULE = Rule(
    code="MSK002",
    name="mask-not-as-declared",
    kind="E",
    needs=("origin", "policy_mask", "supervised_mask", "setup.mask | setup.truncated"),
    taints=("sft", "policy"),
    applies=lambda step: (
        step.setup.truncated == "mask"
        if step.setup.mask is None
        else step.setup.mask != "no_structure" or "structure" in step.tokens
    ),
    judge=judge,
    example=example,
    lookalikes=(without_structure, some_begun, begun_with_forced_tokens, cut_ones_masked, a_group_left_out),
)
