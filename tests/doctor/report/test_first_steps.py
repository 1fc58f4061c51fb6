"""The report of a step: what it shows of each family, by hand-made rows of the tiny model's tokenizer."""

from dataclasses import replace

import pytest
import torch

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import GRPO_SETUP, example_step, with_optimizer_steps
from truing.doctor.facts.answer_lengths import answer_lengths
from truing.doctor.report.family_summary import distribution_text
from truing.doctor.report.first_steps import SHOWN_CHARACTERS, boundary_lines
from truing.types.passes import PASS_STREAMS, Passes
from truing.types.step_table import StepNumbers, starts_of
from truing.types.token import Origin

NAN = float("nan")


def texts(step, tokenizer):
    return [text for text, _ in boundary_lines(step, tokenizer)]


def shown_rows(step, tokenizer):
    """Samples and families that the report shows."""
    return [tuple(text.split(" ")[:2]) for text in texts(step, tokenizer) if ", ending in: " in text]


def step_of_texts(tokenizer, body, header, answers, families=None, **streams):
    """A step of one-turn rows with these texts, their prompts of what a task says and a template's header."""
    step, count = (
        example_step(answers=(4,) * len(answers), rewards=(0.0, 1.0) * (len(answers) // 2)),
        len(answers),
    )
    rows, ids, origins = [], [], []
    for row, answer, family in zip(step.samples, answers, families or ["f"] * count, strict=True):
        parts = [tokenizer.encode(text, add_special_tokens=False) for text in (body, header, answer)]
        start = len(parts[0]) + len(parts[1])
        turn = replace(row.turns[0], start=start, end=start + len(parts[2]))
        rows.append(replace(row, turns=(turn,), family=family, sample_id=f"s{len(rows)}"))
        ids.append(torch.tensor([i for part in parts for i in part]))
        kinds = torch.tensor([Origin.PROMPT, Origin.TEMPLATE, Origin.SAMPLED])
        origins.append(kinds.repeat_interleave(torch.tensor(list(map(len, parts)))))
    origin = torch.cat(origins)
    tokens = {name: torch.full((len(origin),), value) for name, value in streams.items()}
    tokens |= {"token_ids": torch.cat(ids), "origin": origin, "policy_mask": origin == Origin.SAMPLED}
    tokens |= dict.fromkeys(("supervised_mask", "structure"), torch.zeros(len(origin), dtype=torch.bool))
    setup = replace(GRPO_SETUP, stop_ids=(tokenizer.eos_token_id,))
    computed = {name: tokens.pop(name) for name in PASS_STREAMS if name in tokens}
    return replace(
        step,
        samples=rows,
        starts=starts_of(list(map(len, ids))),
        streams=tokens,
        passes=Passes.one_each(count, computed),
        setup=setup,
    )


@pytest.fixture
def tokenizer(tiny):
    return tiny.tokenizer


BODY, HEADER = "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>assistant\n"


def test_two_samples_of_each_family_of_different_groups(tokenizer):
    step = step_of_texts(tokenizer, BODY, HEADER, ["x<|im_end|>"] * 8)
    assert shown_rows(step, tokenizer) == [("s0", "(f):"), ("s4", "(f):")]
    step = step_of_texts(tokenizer, BODY, HEADER, ["x<|im_end|>"] * 8, ["a", "b"] * 4)
    assert shown_rows(step, tokenizer) == [("s0", "(a):"), ("s4", "(a):"), ("s1", "(b):"), ("s5", "(b):")]


def test_samples_that_are_not_trained_on_are_shown_too(tokenizer):
    step = step_of_texts(tokenizer, BODY, HEADER, ["x<|im_end|>"] * 8)
    assert [name for name, _ in shown_rows(with_optimizer_steps(step, {4: -1}), tokenizer)] == [
        "s0",
        "s4",
    ]


def test_a_hundred_and_twenty_characters_on_each_side(tokenizer):
    answer = "a" * 60 + "你" * 100 + "z" * 400 + "<|im_end|>"
    step = step_of_texts(tokenizer, "q" * 500 + "é", HEADER, [answer] * 2)
    prompt, answer_text = texts(step, tokenizer)[:2]
    assert prompt.endswith(f': "{"q" * (SHOWN_CHARACTERS - len(HEADER) - 1)}é<|im_start|>assistant\\n"')
    assert answer_text.endswith(f': "{answer[:SHOWN_CHARACTERS]}" … "{answer[-SHOWN_CHARACTERS:]}"')


def test_a_chat_header_in_an_answer_is_named(tokenizer):
    answers = ["fine<|im_end|>", "no<|im_start|>user\nmore<|im_start|>x<|im_end|>"]
    step = step_of_texts(tokenizer, BODY, HEADER, answers, ["a", "b"])
    (line,) = (line for line in texts(step, tokenizer) if "chat header" in line)
    start = step.samples[1].turns[0].start
    assert line == f"chat header inside an answer: '<|im_start|>use' at token {start + 2}, and 1 more"


def test_a_header_of_plain_text_is_named_too(tokenizer):
    answers = ["fine<|im_end|>", "no\n### Response:\nmore<|im_end|>"]
    step = step_of_texts(tokenizer, "Do it.", "\n\n### Response:\n", answers, ["a", "b"])
    start = step.samples[1].turns[0].start
    (line,) = (line for line in texts(step, tokenizer) if "chat header" in line)
    assert line == f"chat header inside an answer: '### Response:', in the turn from token {start}"


def test_scaffolding_of_calls_is_no_header(tokenizer):
    answers = ["fine<|im_end|>", "<|im_start|>f<|im_end|>"]
    step = step_of_texts(tokenizer, BODY, HEADER, answers, ["a", "b"])
    assert any("chat header" in line for line in texts(step, tokenizer))
    call = step.tokens["structure"].clone()
    call[step.starts[1] + step.samples[1].turns[0].start] = True
    assert not any("chat header" in line for line in texts(changed_step(step, structure=call), tokenizer))


def test_entropy_of_each_sample_also_of_one_that_was_not_computed(tokenizer):
    answers = ["x<|im_end|>"] * 2
    step = step_of_texts(tokenizer, BODY, HEADER, answers, entropy=0.5, sampler_logprob=-0.75)
    entries = [line for line in texts(step, tokenizer) if line.startswith("trained: ")]
    assert all(line.endswith("entropy 0.5 nats per token") for line in entries)
    step = step_of_texts(tokenizer, BODY, HEADER, answers, entropy=NAN, sampler_logprob=-0.75)
    lines = texts(step, tokenizer)
    entries = [line for line in lines if "0.75 nats per token, estimated from the draws" in line]
    assert len(entries) == 3  # two samples and their family
    step = step_of_texts(tokenizer, BODY, HEADER, answers)
    assert sum("entropy was not measured" in line for line in texts(step, tokenizer)) == 3


def test_answers_stand_beside_the_demonstrations_of_an_earlier_stage(tokenizer):
    step = step_of_texts(tokenizer, BODY, HEADER, ["abcdefg<|im_end|>", "abc<|im_end|>"])
    shown = {"f": {"demonstrations": [3, 2, 4, 3.0]}, "other": {"answers": [1, 1, 1, 1.0]}}
    step = changed_step(step, past=[StepNumbers("sft", 0, {}, {"lengths": shown})])
    assert any(
        line.startswith("f: answers of 4 to 8 tokens, 6.0 on average; demonstrations of 2 to 4 tokens, 3.0")
        for line in texts(step, tokenizer)
    )


def test_lengths_count_rows_that_have_such_tokens():
    rows = [("f", torch.tensor([0, 4, 4, 2, 4])), ("f", torch.tensor([0, 5])), ("f", torch.tensor([0, 3]))]
    assert answer_lengths(rows) == {"f": {"answers": (1, 3, 3, 3.0), "demonstrations": (1, 1, 1, 1.0)}}


def test_a_component_of_the_reward_is_shown_by_its_distribution():
    assert distribution_text([0.0, 1.0, 1.0, 0.0, 0.0]) == "0.4 on average over 5 rollouts: 0 × 3, 1 × 2"
    assert distribution_text([0.0, 0.1, 0.2, 0.3, 1.0]) == (
        "0.32 on average over 5 rollouts: least 0, 25 % 0.1, median 0.2, 75 % 0.3, most 1"
    )


def test_rollouts_of_several_rows_count_once(tokenizer):
    step = step_of_texts(tokenizer, BODY, HEADER, ["x<|im_end|>"] * 2)
    same = {i: {"rollout_id": "r", "reward_parts": {"exact": 1.0}} for i in range(2)}
    lines = texts(changed_step(step, samples=same), tokenizer)
    assert "reward component exact: 1 on average over 1 rollout: 1 × 1" in lines


def test_a_rollout_without_a_turn_is_not_shown(tokenizer):
    step = step_of_texts(tokenizer, BODY, HEADER, ["x<|im_end|>"] * 2)
    assert [name for name, _ in shown_rows(changed_step(step, samples={0: {"turns": ()}}), tokenizer)] == [
        "s1"
    ]
