"""TOK004: Turns do not match the sampled tokens.

What: A sampled or demonstrated token lies in no turn, or in two. A turn contains tokens of the prompt, the
template or a tool. A turn ends after its sample. Or the prompt does not end at the first turn.

Why it is silent: Spans of turns are offsets into a sample, and an offset that is wrong by a few tokens still
points at tokens. Rewards of turns, texts and lengths then belong to other tokens than the policy's.

How it is measured: The rule counts spans over the sample and compares them with the origins. Sampled and
demonstrated tokens must lie in exactly one, prompt, template and tool tokens in none. Only forced tokens
may lie between the prompt's end and the first turn.

Healthy look-alikes: Tokens forced by a grammar lie within a turn. A forced start of a turn may count as
prompt. A rollout that failed before its first token has a turn of no tokens. A sample may contain earlier
turns in its prompt.

Fix: Record start and end of a turn when joining its ids to the sample, and shift them whenever the code
inserts something before.

References: docs/agents.md, docs/templates.md
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule
from truing.doctor.token_places import ClaimFields, Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason
from truing.types.token import Excluded, Origin

OTHERS = torch.tensor([Origin.PROMPT, Origin.TEMPLATE, Origin.TOOL])
ANSWER_ORIGINS = torch.tensor([Origin.SAMPLED, Origin.DEMO])


class Measured(NamedTuple):
    """Tokens and turns that contradict each other."""

    outside: Places  # sampled or demonstrated, and in no turn
    twice: Places  # in more than one turn
    other_origins: Places  # of other origins, in a turn
    beyond: int  # turns that end after their sample
    prompts: int  # samples whose prompt does not end at the first turn
    row: int  # the first of these
    at: int  # where its prompt ends
    begins: int  # where its first turn begins


def measure(step: Step) -> Measured:
    """Compare the turns with the origins, and count."""
    origin_N = step.tokens["origin"].long()
    count_N, has_turns_N = torch.zeros_like(origin_N), torch.zeros(len(origin_N), dtype=torch.bool)
    beyond, wrong = 0, list[tuple[int, int, int]]()
    for index, row, part in step.slices():
        has_turns_N[part] = bool(row.turns)
        for turn in row.turns:
            beyond += not 0 <= turn.start <= turn.end <= part.stop - part.start
            count_N[part.start + turn.start : min(part.start + turn.end, part.stop)] += 1
        if row.turns:
            low, high = sorted((row.prompt_length, row.turns[0].start))
            if (origin_N[part][low:high] != Origin.FORCED).any():
                wrong.append((index, row.prompt_length, row.turns[0].start))
    answer_N, others_N = torch.isin(origin_N, ANSWER_ORIGINS), torch.isin(origin_N, OTHERS)
    return Measured(
        places(step, has_turns_N & answer_N & (count_N == 0)),
        places(step, count_N > 1),
        places(step, others_N & (count_N > 0)),
        beyond,
        len(wrong),
        *(wrong[0] if wrong else (0, 0, 0)),
    )


def judge(step: Step) -> Iterator[Claim]:
    """Claim any contradiction."""
    measured = measure(step)
    wrong = [where for where in (measured.outside, measured.twice, measured.other_origins) if where]
    parts = [
        f"{count} {what}"
        for count, what in (
            (measured.outside.tokens, "sampled or demonstrated tokens lie in no turn"),
            (measured.twice.tokens, "tokens lie in two turns"),
            (measured.other_origins.tokens, "tokens of prompt, template or tools lie in a turn"),
            (measured.beyond, "turns end after their sample"),
            (measured.prompts, "prompts do not end at the first turn"),
        )
        if count
    ]
    if parts:
        low, high = sorted((measured.at, measured.begins))
        here: ClaimFields = {"row": measured.row, "start": low, "end": high}
        yield Claim(
            Verdict.PROVEN,
            "; ".join(parts),
            got=f"sample {measured.row}: its prompt ends at {measured.at}, its first turn begins at"
            f" {measured.begins}"
            if measured.prompts
            else "; ".join(map(str, wrong)),
            expected="every sampled token in one turn, and otherwise only forced ones",
            **(wrong[0].claim_fields if wrong else here),
            specificity=2,
        )


def example() -> Step:
    """Two padding tokens are inserted before a sample, and its turn is not shifted."""
    healthy = example_step()
    length = healthy.lengths[1]
    turn = TurnSpan(2, length - 2, FinishReason.STOP, 0, "a")
    return changed_step(healthy, samples={1: {"turns": (turn,)}})


def failed_before_its_first_word() -> Step:
    """A rollout without an answer has its prompt and a turn of no tokens."""
    step = example_step(rewards=(0.0,) * 4 + (1.0, 0.0, 0.0, 1.0))
    end, here_N = step.lengths[0], step.sample_of_token == 0
    turn = TurnSpan(end, end, FinishReason.ERROR, 0, "")
    row = {"status": "error", "prompt_length": end, "turns": (turn,)}
    numbers = ("sampler_logprob", "old_logprob", "new_logprob", "advantage")
    streams = {name: step.tokens[name].masked_fill(here_N, torch.nan) for name in numbers}
    streams |= {name: step.tokens[name] & ~here_N for name in ("policy_mask", "kl_mask")}
    streams["excluded"] = step.tokens["excluded"].masked_fill(here_N, Excluded.NOT_SAMPLED)
    sampled_N = here_N & (step.tokens["origin"] == Origin.SAMPLED)
    streams["origin"] = step.tokens["origin"].masked_fill(sampled_N, Origin.PROMPT)
    return with_token_gradients(
        with_optimizer_steps(
            changed_step(step, samples={0: {**row, "reward": float("nan"), "text": ""}}, tokens=streams),
            {0: -1},
        )
    )


RULE = Rule(
    code="TOK004",
    name="turn-spans",
    kind="E",
    needs=("origin", "sample.turns"),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(failed_before_its_first_word,),
)
