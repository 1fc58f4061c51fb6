"""Calls that are held to a grammar: what is drawn is valid, and the trainer scores what was drawn."""

import dataclasses
from dataclasses import dataclass, field

import pytest
import torch
from jsonschema import Draft202012Validator

from truing.algos.flatten import as_demonstration, flatten
from truing.chat import CallGrammars
from truing.config import EpisodeConfig
from truing.engines.local.engine import LocalEngine
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.ops.sampling import processed_logits, support_mask
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import PolicyTurns
from truing.types.message import ToolSpec
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Excluded, Origin

LOOK = ToolSpec(
    "look",
    "Look a word up.",
    {
        "type": "object",
        "properties": {"word": {"type": "string", "maxLength": 6}, "times": {"enum": [1, 2]}},
        "required": ["word"],
    },
)
PAINT = ToolSpec(
    "paint",
    "Paint a wall.",
    {
        "type": "object",
        "properties": {"colour": {"$ref": "#/$defs/Colour"}, "coats": {"type": "boolean"}},
        "required": ["colour", "coats"],
        "$defs": {"Colour": {"enum": ["red", "green", "blå"]}},
    },
)
TOOLS = {tool.name: tool for tool in (LOOK, PAINT)}

EVERYTHING = {
    "temperature": 1.3,
    "top_p": 0.9,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "repetition_penalty": 1.1,
    "min_new_tokens": 3,
}


@dataclass
class Asking:
    """An environment of one turn."""

    rewards: dict = field(default_factory=dict)
    notes: tuple = ()

    def tasks(self, split):
        return []


@pytest.fixture
def drawn(tiny, chat):
    """Rollouts of one turn: ``drawn(forced=b"<tool_call>", temperature=0.7)``."""

    def draw(*, count=24, forced=b"<tool_call>", grammar=True, tools=(LOOK, PAINT), seed=0, **rules):
        sampling_params = SamplingParams(stop_ids=tiny.stop_ids, **{"max_new_tokens": 120} | rules)
        task = Task("t", "f", ({"role": "user", "content": "hello"},), tools=tools)
        groups = collect(
            [task],
            group_size=count,
            context=EpisodeContext(chat, Asking(), sampling_params, EpisodeConfig(), tiny.context_length),
            turn_source=PolicyTurns(
                LocalEngine(tiny.model, context_length=tiny.context_length),
                sampling_params,
                torch.tensor(list(forced), dtype=torch.long),
                force_rate=1.0,
                grammars=CallGrammars(chat, 259) if grammar else None,
            ),
            grade=None,
            key=("test", seed),
        )
        return groups[0].rollouts

    return draw


@pytest.mark.parametrize("seed", range(3))
def test_a_call_once_begun_parses_and_is_valid(tiny, chat, drawn, seed):
    with torch.no_grad():  # a model that likes to stop, or a turn would go on to its limit
        tiny.model.get_output_embeddings().weight[tiny.stop_ids[0]] *= 30
    rollouts = drawn(seed=seed)
    ended = [r for r in rollouts if r.turns[0].finish_reason is not FinishReason.LENGTH]
    assert len(ended) > 12
    for rollout in ended:
        (message,) = rollout.messages
        for call in message["tool_calls"]:
            called = call["function"]
            Draft202012Validator(TOOLS[called["name"]].parameters).validate(called["arguments"])
    assert {r.messages[0]["tool_calls"][0]["function"]["name"] for r in ended} == set(TOOLS)


@pytest.mark.parametrize("rules", [{}, EVERYTHING, {"temperature": 0.8, "top_k": 5}])
@pytest.mark.parametrize("forced", [b'<tool_call>\n{"name": "', b"<tool_cal"])
def test_the_trainer_scores_what_was_drawn(tiny, drawn, rules, forced):
    rows = [
        sample
        for rollout in drawn(forced=forced, count=4, max_new_tokens=80, **rules)
        for sample in flatten(rollout)
    ]
    batch = collate(rows)
    scores = score(tiny.model, batch, batch.policy_mask)
    difference = (scores.logprob - batch.sampler_logprob)[batch.policy_mask].abs().max()
    assert difference < 1e-5
    assert batch.policy_mask.any()


def test_without_its_support_a_token_would_be_scored_otherwise(tiny, drawn):
    rows = [sample for rollout in drawn(count=2) for sample in flatten(rollout)]
    batch = collate([dataclasses.replace(row, support=None) for row in rows])
    scores = score(tiny.model, batch, batch.policy_mask)
    assert (scores.logprob - batch.sampler_logprob)[batch.policy_mask].abs().max() > 0.1


def test_a_token_without_a_choice_is_forced_and_under_no_mask(drawn):
    rollout = drawn(count=1)[0]
    (row,), (turn,) = flatten(rollout), rollout.turns
    forced = turn.origin == Origin.FORCED
    assert bytes(turn.token_ids[:11].tolist()) == b'\n{"name": "'
    assert forced[:11].all()
    assert not forced[11]  # the first letter tells the tools apart
    assert forced[12:15].all()
    assert (turn.sampler_logprob[forced] == 0).all()
    assert (turn.sampler_logprob[~forced] < 0).all()
    off = torch.cat([torch.ones(row.prompt_length, dtype=torch.bool), forced])
    for mask in ("policy_mask", "kl_mask", "value_mask", "supervised_mask"):
        assert not getattr(row, mask)[off].any()
    assert (row.excluded[off] == Excluded.NOT_SAMPLED).all()
    assert torch.equal(row.policy_mask, ~off)
    (shown,) = flatten(as_demonstration(rollout))
    assert torch.equal(shown.supervised_mask, ~off)


def test_forced_ids_count_as_generated(tiny, drawn):
    """The scaffolding holds an "a" and no "r", so that a penalty on what was generated moves the odds."""
    tools = tuple(dataclasses.replace(LOOK, name=name) for name in ("amble", "run"))
    (row,) = flatten(drawn(count=1, tools=tools, presence_penalty=1.5)[0])
    t = row.prompt_length + 11
    allowed = torch.zeros(1, 259, dtype=torch.bool)
    allowed[0, list(b"ar")] = True
    with torch.no_grad():
        logits = tiny.model(input_ids=row.token_ids[None, :t]).logits[:, -1]
    right, wrong = (
        processed_logits(logits, row.sampling_params, row.token_ids[None, start:t], allowed_NV=allowed)
        .log_softmax(-1)[0, row.token_ids[t]]
        .item()
        for start in (row.prompt_length, t)
    )
    assert row.sampler_logprob[t].item() == pytest.approx(right, abs=1e-5)
    assert row.sampler_logprob[t].item() != pytest.approx(wrong, abs=0.1)


def test_probability_over_what_was_allowed_sums_to_one(tiny, drawn):
    (row,) = flatten(drawn(count=1)[0])
    with torch.no_grad():
        logits = tiny.model(input_ids=row.token_ids[None]).logits[0]
    for t in range(row.prompt_length, len(row)):
        support = support_mask([row.support.at(t)], 259)[0]
        assert support[row.token_ids[t]]
        share = logits[t - 1].softmax(-1)[support].sum()
        expected = logits[t - 1].log_softmax(-1)[row.token_ids[t]] - share.log()
        assert torch.isclose(row.sampler_logprob[t], expected, atol=1e-5)


def test_text_without_a_call_is_free(drawn):
    """Same keys, same draws, bit for bit; and nothing is recorded as cut."""
    free, held = drawn(forced=b"", grammar=False, count=4), drawn(forced=b"", count=4)
    for a, b in zip(free, held, strict=True):
        assert torch.equal(a.turns[0].token_ids, b.turns[0].token_ids)
        assert torch.equal(a.turns[0].sampler_logprob, b.turns[0].sampler_logprob)
        assert len(b.turns[0].support.ids) == 0
        assert a.turns[0].support is None


def test_tasks_without_tools_have_no_grammar(drawn):
    assert all(rollout.turns[0].support is None for rollout in drawn(tools=(), count=2))


def test_min_new_tokens_bans_stops_outside_calls_and_never_empties_a_row(tiny, drawn):
    with torch.no_grad():
        tiny.model.get_output_embeddings().weight[tiny.stop_ids[0]] *= 30
    turns = [rollout.turns[0] for rollout in drawn(min_new_tokens=110)]
    stopped = [turn for turn in turns if turn.finish_reason is not FinishReason.LENGTH]
    assert stopped
    assert all(len(turn.token_ids) > 110 for turn in stopped)
