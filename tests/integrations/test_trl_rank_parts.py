"""What two processes of TRL have of a step, joined; and which processes can be audited."""

import math
import pickle
from types import SimpleNamespace

import datasets
import pytest
import torch
from accelerate import DistributedType
from accelerate.data_loader import BatchSamplerShard
from accelerate.utils import DDPCommunicationHookType
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, WeightedRandomSampler
from trl.trainer.utils import RepeatSampler

from truing.doctor.traces.step_file import check_step_file
from truing.errors import RecipeError
from truing.integrations.trl.example_counts import Example, ExampleCounts, digest_of, shared_examples
from truing.integrations.trl.processes import (
    averages_exactly,
    draws_examples_once,
    holds_whole_weights,
    ranks_of,
)
from truing.integrations.trl.rank_parts import RankPart, joined_facts
from truing.integrations.trl.rows import RowFacts, Rows


def part(**facts):
    return RankPart(Rows([], [], [], [], []), facts, {}, 1.0, {})


def plain(trainer, rows):
    return {
        "rows": rows,
        "tokens": 10 * rows,
        "trainer": trainer,
        "itself": 1e-6,
        "median": {"trainer": 1e-7},
    }


def test_a_difference_on_one_rank_is_that_of_all():
    joined = joined_facts(
        [part(plain=plain(1e-6, 4)), part(plain=plain(0.3, 2) | {"where": {"trainer": "b"}})]
    )
    assert joined["plain"] == plain(0.3, 2) | {"where": {"trainer": "b"}, "rows": 6, "tokens": 60}


def test_bets_and_replays_of_all_ranks_add_up():
    first = {"tokens": 5, "gains": {"rank": [1.0, 2.0], "stop": [0.5]}}
    replay = {"tokens": 5, "missed": 1, "largest": 0.2, "where": ("0.0", 3)}
    second = {"tokens": 7, "gains": {"rank": [0.5, 0.25]}, "replay": replay}
    third = {"tokens": 7, "gains": {}, "replay": replay | {"missed": 2, "largest": 0.1, "where": ("0.4", 1)}}
    joined = joined_facts([part(audit=first), part(audit=second), part(audit=third), part()])
    assert joined["audit"]["tokens"] == 19
    assert joined["audit"]["gains"] == {"rank": [1.5, 2.25], "stop": [0.5]}
    assert joined["audit"]["replay"] == {"tokens": 10, "missed": 3, "largest": 0.2, "where": ("0.0", 3)}


def test_facts_of_one_rank_stay_as_they_are():
    facts = {"plain": plain(1e-6, 4), "audit": {"tokens": 5, "gains": {"stop": [0.5]}}, "clip": {"norm": 1.0}}
    assert joined_facts([part(**facts)]) == facts


def test_rows_of_a_rank_count_their_share_and_are_sent_alone():
    whole = torch.arange(100_000.0)
    rows = Rows([], [{"token_gradient": whole[:3], "new_logprob": whole[:3]}], [], [], [])
    (row,) = rows.averaged(2).streams
    assert row["token_gradient"].tolist() == [0.0, 0.5, 1.0]
    assert row["new_logprob"].tolist() == [0.0, 1.0, 2.0]
    assert len(pickle.dumps(row)) < 2_000
    assert rows.averaged(1) is rows


def row(name, ids, **streams):
    """A row with its streams."""
    known = {"token_ids": torch.tensor(ids), "loss_mask": torch.ones(len(ids)).bool()}
    return RowFacts(name, "g", "stop"), known | streams


def step_of_rows(*rows, ranks=None):
    samples, streams = map(list, zip(*rows, strict=True))
    found = Rows(samples, streams, [], ranks or [0] * len(rows), list(range(len(rows))))
    return found.step_file(1, {"lr": 0.1}, {})


def test_a_row_that_is_trained_twice_is_there_twice_under_a_name_of_its_own():
    file = step_of_rows(row("0.1", [5, 6]), row("0.2", [7]), row("0.1", [5, 6]), ranks=[0, 1, 1])
    assert file.facts.sample_id == ["0.1", "0.2", "0.1 (2)"]
    assert file.tensors["pass.rank"].tolist() == [0, 1, 1]
    assert file.tensors["pass.micro_batch"].tolist() == [0, 1, 2]
    check_step_file(file)


def test_a_row_without_a_token_is_left_out():
    file = step_of_rows(row("a", []), row("b", [5]))
    assert file.facts.sample_id == ["b"]
    assert file.lengths == [1]
    check_step_file(file)


def test_origins_that_some_row_lacks_are_made_from_the_mask():
    known = torch.tensor([0, 5], dtype=torch.uint8)
    both = row("a", [5, 6], origin=known), row("b", [5, 6], loss_mask=torch.tensor([False, True]))
    assert step_of_rows(both[0]).facts.origin_source == "roles"
    file = step_of_rows(*both)
    assert file.facts.origin_source == "loss_mask"
    assert file.tensors["origin"].tolist() == [5, 5, 0, 5]


A, B = digest_of("a"), digest_of("b")


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ([{"r0": Example("r0", 0, A)}, {"r1": Example("r1", 0, A)}], ["r0"]),
        ([{"r0": Example("r0", 0, A)}, {"r1": Example("r1", 0, B)}], []),
        (
            [{"r0": Example("r0", 0, A), "r1": Example("r1", 0, A)}, {"r2": Example("r2", 0, B)}],
            [],
        ),  # one rank
        ([{"r0": Example("g0", 0, A)}, {"r1": Example("g0", 0, A)}], []),  # a group on two ranks
        ([{"r0": Example("r0", 0, A)}, {"r1": Example("r1", 1, A)}], []),  # of two generations
        (
            [{"r0": Example("g0", 0, A), "r1": Example("g0", 0, A)}, {"r2": Example("g1", 0, A)}],
            ["r0", "r1"],
        ),
    ],
)
def test_an_example_of_two_ranks(ranks, named):
    assert shared_examples(ranks, lambda digest: 1) == [[name, [0, 1]] for name in named]
    assert shared_examples(ranks, lambda digest: 2) == []  # the dataset has it twice


def test_examples_of_a_dataset_are_counted():
    data = datasets.Dataset.from_list([{"prompt": each, "other": 0} for each in "aab"])
    counts = ExampleCounts(data, "prompt")
    assert counts.known
    assert (counts(A), counts(B), counts(digest_of("c"))) == (2, 1, math.inf)


@pytest.mark.parametrize("data", [datasets.Dataset.from_list([{"text": "a"}]), iter(["a"]), None])
def test_examples_that_cannot_be_counted_are_unknown(data):
    counts = ExampleCounts(data, "prompt")
    assert not counts.known
    assert counts(A) == math.inf


@pytest.mark.parametrize(
    ("kind", "whole"),
    [("NO", True), ("MULTI_CPU", True), ("MULTI_GPU", True), ("FSDP", False), ("DEEPSPEED", False)],
)
def test_which_processes_hold_whole_weights(kind, whole):
    assert holds_whole_weights(SimpleNamespace(distributed_type=DistributedType(kind))) == whole


@pytest.mark.parametrize(
    ("sampler", "once"),
    [
        (RandomSampler([1, 2]), True),
        (SequentialSampler([1, 2]), True),
        (RepeatSampler([1, 2], 2), True),
        (RandomSampler([1, 2], replacement=True), False),
        (WeightedRandomSampler([0.5, 0.5], 2), False),
        ([0, 0], False),
    ],
)
def test_which_samplers_draw_an_example_once(sampler, once):
    batches = BatchSampler(sampler, 1, drop_last=False)
    assert draws_examples_once(SimpleNamespace(batch_sampler=batches)) == once
    assert draws_examples_once(SimpleNamespace(batch_sampler=BatchSamplerShard(batches, 2, 0))) == once


def test_a_loader_without_a_sampler_is_unknown():
    assert not draws_examples_once(None)


def test_a_hook_that_compresses_gradients_makes_no_plain_average():
    for hook, exact in ((DDPCommunicationHookType.NO, True), (DDPCommunicationHookType.BF16, False)):
        assert averages_exactly(SimpleNamespace(ddp_handler=SimpleNamespace(comm_hook=hook))) == exact
    assert averages_exactly(SimpleNamespace(ddp_handler=None))


def test_processes_that_share_rows_are_refused():
    trainer = SimpleNamespace(get_tp_size=lambda: 2, get_cp_size=lambda: 1, get_sp_size=lambda: 1)
    with pytest.raises(RecipeError, match="processes that share rows") as error:
        ranks_of(trainer)
    assert "tp_size = 2" in str(error.value)
