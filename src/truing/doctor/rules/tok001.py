"""TOK001: The trained ids differ from the sampled ones.

What: At some positions the trainer scores another id than the sampler returned, or one of them has
additional ids. Or the engine read other ids before a turn than the trained sample has there.

Why it is silent: The text is the same. One text has many encodings, and encoding it again gives the usual
one, not the sampled one. Every ratio after that place compares two different tokens.

How it is measured: The rule compares each turn's ids from the sampler, position by position, with the ids
of the trained sample. The share of equal ones must be exactly 1: ids have no tolerance. The finding names
the first different sample and token, both ids, and both lengths. Of the ids before each turn the engine
keeps a hash, as it read them, and the trained ones must have the same.

Healthy look-alikes: Sampled ids often differ from the usual encoding of their text, which is harmless as
long as no code encodes it again. Demonstrations are not sampled, and not compared.

Fix: Carry ids from the sampler to the trainer, and join turns as lists of ids. If a sampler returns text
alone, request its ids.

References: https://blog.vllm.ai/2025/10/22/agent-lightning.html,
https://github.com/huggingface/trl/issues/5224
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.facts.id_comparison import IdPair, compare_ids
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim unequal ids."""
    prompts, ids = step.facts.get("engine_prompts"), step.facts.get("ids")
    if prompts and "sample_id" in prompts:
        start = prompts.get("position", 0)
        yield Claim(
            Verdict.PROVEN,
            f"the engine read other ids before {prompts['other']} of {prompts['turns']} turns than are"
            " trained",
            got=f"other ids before token {start}",
            expected="the ids of the sample up to there, as the dialogue has them",
            row=step.row_of(prompts["sample_id"]),
            end=start,
            specificity=4.1,
        )
    first = ids and ids["first"]
    equal = ids["equal"] / ids["total"] if ids and first else step.metrics["alignment"]
    if equal == 1:
        return
    share = f"{1 - equal:.2g} of all sampled positions have another id in training"
    got, expected, place = f"{equal:.6g} of the ids are equal", "exactly 1", {}
    if ids and first:
        start = first["position"]
        share += f", in {with_count(ids['rows'], 'sample')}; the first is token {start}"
        got = f"{_id(first['trained'])}, and {with_count(first['trained_length'], 'id')} in all"
        expected = f"{_id(first['drawn'])}, and {with_count(first['drawn_length'], 'id')} in all, as sampled"
        place = {"row": step.row_of(first["sample_id"]), "start": start, "end": start + 1}
    # masks and advantages of other ids are wrong too
    yield Claim(Verdict.PROVEN, share, got=got, expected=expected, specificity=4, **place)


def _id(number: int | None) -> str:
    """Return an id as text, or "no id"."""
    return "no id" if number is None else f"id {number}"


def example() -> Step:
    """Answers are decoded and encoded again: one has other ids, and one fewer, from its second token on."""
    step = example_step()
    drawn, start = [20, 31, 22, 23], step.samples[0].turns[0].start
    ids = compare_ids([IdPair(step.samples[0].sample_id, start, drawn, [20, 40, 23])])
    return changed_step(step, metrics={"alignment": ids["equal"] / ids["total"]}, facts={"ids": ids})


def other_prompt() -> Step:
    """The engine did not get a tool's reply, which the trained sample has."""
    step = changed_step(example_step(), metrics={"alignment": 1.0})
    prompts = {"turns": 8, "other": 1, "sample_id": "s0", "position": step.samples[0].turns[0].start}
    return changed_step(step, facts={"engine_prompts": prompts})


RULE = Rule(
    code="TOK001",
    name="ids-changed",
    kind="E",
    needs=("metrics.alignment",),
    taints=("policy",),
    applies=lambda step: step.setup.algo != "sft" or "alignment" in step.metrics,
    judge=judge,
    example=example,
)
