import torch

from truing.algos.flatten import as_demonstration, flatten, without_loss_terms
from truing.types.rollout import Rollout, Task, Turn
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.status import FinishReason, Status
from truing.types.token import Excluded, Origin, Support

TASK = Task("t", "f", ({"role": "user", "content": "?"},), demonstration="ok")


def turn(context, origin, ids, logprob, structure=(), **known):
    return Turn(
        context_ids=torch.tensor(context),
        context_origin=torch.tensor(origin, dtype=torch.uint8),
        token_ids=torch.tensor(ids),
        origin=torch.full((len(ids),), Origin.SAMPLED, dtype=torch.uint8),
        structure=torch.tensor([i in structure for i in range(len(ids))]),
        sampler_logprob=torch.tensor(logprob),
        **{"finish_reason": FinishReason.STOP, "sampler_version": 7, "weight_digest": "digest"} | known,
    )


def rollout(*turns, sampling_params=RAW, reward=0.5):
    return Rollout("r", "g", TASK, turns, "text", Status.DONE, sampling_params, reward=reward)


def test_two_turns():
    (row,) = flatten(rollout(turn([1, 2, 3], [0, 1, 1], [4, 5], [-0.1, -0.2]), turn([6], [2], [7], [-0.3])))
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert row.origin.tolist() == [0, 1, 1, Origin.SAMPLED, Origin.SAMPLED, Origin.TOOL, Origin.SAMPLED]
    assert row.policy_mask.tolist() == [False, False, False, True, True, False, True]
    assert [(span.start, span.end) for span in row.turns] == [(3, 5), (6, 7)]
    assert row.sampler_logprob[row.policy_mask].tolist() == [
        torch.tensor(x).item() for x in (-0.1, -0.2, -0.3)
    ]
    assert row.sampler_logprob[~row.policy_mask].isnan().all()
    assert not row.supervised_mask.any()
    assert row.prompt_length == 3
    assert row.old_source == "sampler"


def test_a_turn_that_re_renders_earlier_turns_begins_another_sample():
    first = turn([1, 2], [0, 1], [4, 5], [-0.1, -0.2])
    second = turn([6], [2], [7], [-0.3])
    third = turn([1, 2, 9, 6, 8], [0, 1, 1, 2, 1], [3], [-0.4], restart_reason="token 2: …")
    rows = flatten(rollout(first, second, third))
    assert [row.sample_id for row in rows] == ["r#0", "r#1"]
    assert [row.token_ids.tolist() for row in rows] == [[1, 2, 4, 5, 6, 7], [1, 2, 9, 6, 8, 3]]
    assert [row.policy_mask.nonzero()[:, 0].tolist() for row in rows] == [[2, 3, 5], [5]]
    assert [row.prompt_length for row in rows] == [2, 5]
    assert {row.rollout_id for row in rows} == {"r"}


def test_tokens_that_a_mask_policy_excludes_have_a_reason():
    plain = turn([1], [0], [4, 5], [-0.1, -0.2], structure=[0])
    forced = turn([6, 7], [2, Origin.FORCED], [8], [-0.3])
    why = {
        mask: [Excluded(int(x)).name for x in flatten(rollout(plain, forced), mask)[0].excluded]
        for mask in ("sampled", "no_structure", "action")
    }
    context = "NOT_SAMPLED"
    assert why == {
        "sampled": [context, "NO", "NO", context, context, "NO"],
        "no_structure": [context, "STRUCTURE", "NO", context, context, "NO"],
        "action": [context, "NO", "NO", context, context, "FORCED_ACTION"],
    }


def test_a_sample_without_loss_terms_stays_recorded():
    (row,) = flatten(rollout(turn([1], [0], [4, 5], [-0.1, -0.2])))
    off = without_loss_terms(row)
    assert not (off.policy_mask | off.kl_mask | off.value_mask | off.supervised_mask).any()
    assert off.excluded.tolist() == [Excluded.NOT_SAMPLED, Excluded.NOT_KEPT, Excluded.NOT_KEPT]
    assert torch.equal(off.sampler_logprob[1:], row.sampler_logprob[1:])


def test_a_rollout_without_turns_has_no_sample():
    assert flatten(rollout()) == []


def test_supports_follow_their_tokens():
    sampling_params = SamplingParams(top_k=2)
    first = Support(torch.tensor([4, 9, 5]), torch.tensor([0, 2, 3]))
    second = Support(torch.tensor([7, 8]), torch.tensor([0, 2]))
    (row,) = flatten(
        rollout(
            turn([1], [0], [4, 5], [-1.0, 0.0], support=first),
            turn([6], [2], [7], [-1.0], support=second),
            sampling_params=sampling_params,
        )
    )
    assert [row.support.at(t).tolist() for t in range(5)] == [[], [4, 9], [5], [], [7, 8]]


def test_a_kept_rollout_becomes_a_demonstration_of_its_sampled_ids():
    (row,) = flatten(as_demonstration(rollout(turn([1, 2], [0, 1], [4, 257], [-0.1, -0.2]))))
    assert row.token_ids.tolist() == [1, 2, 4, 257]
    assert row.origin.tolist() == [0, 1, Origin.DEMO, Origin.DEMO]
    assert row.supervised_mask.tolist() == [False, False, True, True]  # the stop token is trained
    assert not (row.policy_mask | row.kl_mask | row.value_mask).any()
    assert row.sampler_logprob.isnan().all()
    assert row.old_logprob.isnan().all()
    assert row.old_source == ""
    assert row.reward == 0.5
    assert row.group_id == "g"
