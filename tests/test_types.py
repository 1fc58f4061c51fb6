"""Constructors reject invalid values and name the place."""

import dataclasses

import pytest
import torch
from samples import sample

from truing.errors import InvalidValueError
from truing.models.forward.collate import collate
from truing.types.rollout import Rollout, RolloutGroup, Task, Turn
from truing.types.sample import FLOAT_STREAMS, MASKS, Sample
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.status import FinishReason, Status
from truing.types.token import Excluded, Origin, Support

TASK = Task("t", "test", ({"role": "user", "content": "?"},))
PROMPT_LENGTH, LENGTH = 2, 4


@pytest.fixture
def row():
    return sample([1, 2], [3, 4])


def rollout(group):
    return Rollout("r", group, TASK, (), "", Status.DONE, RAW)


@pytest.mark.parametrize("name", ["origin", *MASKS, *FLOAT_STREAMS])
@pytest.mark.parametrize("length", [LENGTH - 1, LENGTH + 1])
def test_every_stream_of_a_sample_has_its_length(row, name, length):
    stream = torch.zeros(length, dtype=getattr(row, name).dtype)
    with pytest.raises(InvalidValueError, match="streams differ in shape"):
        dataclasses.replace(row, **{name: stream})


def test_a_stream_is_a_vector(row):
    with pytest.raises(InvalidValueError, match="streams differ in shape"):
        dataclasses.replace(row, advantage=torch.zeros(LENGTH, 1))


@pytest.mark.parametrize("origin", set(Origin) - {Origin.SAMPLED})
def test_a_policy_token_was_sampled(row, origin):
    origins = row.origin.clone()
    origins[3] = origin
    with pytest.raises(InvalidValueError, match="policy_mask of sample s is on at token 3") as error:
        dataclasses.replace(row, origin=origins)
    assert (error.value.got, error.value.expected) == (origin.name, "SAMPLED")


@pytest.mark.parametrize("origin", set(Origin) - {Origin.DEMO})
def test_a_supervised_token_was_demonstrated(row, origin):
    off = torch.zeros(LENGTH, dtype=torch.bool)
    on = off.clone()
    on[1] = True
    origins = torch.full((LENGTH,), origin, dtype=torch.uint8)
    why = torch.full_like(row.excluded, Excluded.NOT_SAMPLED)
    with pytest.raises(InvalidValueError, match="supervised_mask of sample s is on at token 1") as error:
        dataclasses.replace(row, origin=origins, excluded=why, policy_mask=off, supervised_mask=on)
    assert (error.value.got, error.value.expected) == (origin.name, "DEMO")


def test_the_policy_mask_agrees_with_the_reasons_for_exclusion(row):
    kept, left_out = row.excluded, torch.full_like(row.excluded, Excluded.STRUCTURE)
    nothing = torch.zeros_like(row.policy_mask)
    for excluded, mask in ((kept, nothing), (left_out, row.policy_mask)):
        with pytest.raises(InvalidValueError, match="disagrees with the reasons"):
            dataclasses.replace(row, excluded=excluded, policy_mask=mask)


def test_a_support_covers_every_token(row):
    covering = Support(torch.tensor([7, 8, 9], dtype=torch.int32), torch.tensor([0, 0, 0, 1, 3]))
    kept = dataclasses.replace(row, support=covering).support
    assert [kept.at(t).tolist() for t in range(LENGTH)] == [[], [], [7], [8, 9]]
    with pytest.raises(InvalidValueError, match="does not cover its tokens") as error:
        dataclasses.replace(row, support=Support(covering.ids, covering.splits[:-1]))
    assert (error.value.got, error.value.expected) == ("4 splits", "5")


def test_a_sample_with_defaults_has_only_the_given_fields(row):
    known = {item.name for item in dataclasses.fields(Sample)} - {*MASKS, *FLOAT_STREAMS}
    known -= {"excluded", "old_source", "reward", "bootstrap_value", "support"}
    bare = Sample.with_defaults(**{name: getattr(row, name) for name in known})
    assert all(getattr(bare, name).isnan().all() for name in FLOAT_STREAMS)
    assert not any(getattr(bare, name).any() for name in MASKS)
    assert bare.reward != bare.reward
    assert bare.bootstrap_value != bare.bootstrap_value
    assert (bare.old_source, bare.support) == ("", None)


def test_a_sample_is_frozen(row):
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.advantage = row.value


def test_a_group_has_no_rollouts_of_other_groups():
    assert RolloutGroup("g", TASK, (rollout("g"), rollout("g"))).group_id == "g"
    with pytest.raises(InvalidValueError, match="rollouts of other groups") as error:
        RolloutGroup("g", TASK, (rollout("g"), rollout("h")))
    assert error.value.got == ["h"]


@pytest.mark.parametrize(("drawn", "shown", "written"), [(2, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_every_stream_of_a_turn_covers_its_ids(drawn, shown, written):
    with pytest.raises(InvalidValueError, match="streams differ in shape"):
        Turn(
            context_ids=torch.zeros(1, dtype=torch.long),
            context_origin=torch.zeros(1 + shown, dtype=torch.uint8),
            token_ids=torch.zeros(3, dtype=torch.long),
            origin=torch.full((3,), Origin.SAMPLED, dtype=torch.uint8),
            structure=torch.zeros(3 + written, dtype=torch.bool),
            sampler_logprob=torch.zeros(3 - drawn),
            finish_reason=FinishReason.STOP,
            sampler_version=0,
            weight_digest="",
        )


@pytest.mark.parametrize("name", ["valid", "policy_mask", "returns"])
def test_every_tensor_of_a_batch_has_its_shape(row, name):
    batch = collate([row, row])
    with pytest.raises(InvalidValueError, match=f"Batch.{name} has another shape"):
        dataclasses.replace(batch, **{name: getattr(batch, name)[:1]})


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("temperature", -0.1, 0.0),
        ("top_k", -1, 0),
        ("top_p", 0.0, 1.0),
        ("top_p", 1.1, 0.5),
        ("min_p", 1.0, 0.0),
        ("min_p", -0.1, 0.99),
        ("repetition_penalty", 0.0, 0.1),
        ("max_new_tokens", 0, 1),
        ("min_new_tokens", -1, 128),
        ("min_new_tokens", 129, 0),
        ("temperature", float("nan"), 2.0),
    ],
)
def test_sampling_parameters_have_valid_values(name, wrong, right):
    assert getattr(SamplingParams(**{name: right}), name) == right
    with pytest.raises(InvalidValueError, match=f"sampling.{name} has an invalid value"):
        SamplingParams(**{name: wrong})


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_sampling_parameters_know_whether_they_truncate(cut):
    assert SamplingParams(**cut).truncates_support
    assert not SamplingParams(temperature=0.5, presence_penalty=1.0, min_new_tokens=3).truncates_support
