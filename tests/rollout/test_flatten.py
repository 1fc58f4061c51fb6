import torch

from truing.chat import Prompt
from truing.rollout.flatten import as_demonstration, demonstration, flatten
from truing.types import RAW, FinishReason, Origin, Rollout, SamplingContract, Status, Support, Task, Turn

TASK = Task("t", "f", ({"role": "user", "content": "?"},), demonstration="ok")


def turn(context, origin, drawn, logprob, reason=FinishReason.STOP, support=None):
    return Turn(
        torch.tensor(context),
        torch.tensor(origin, dtype=torch.uint8),
        torch.tensor(drawn),
        torch.tensor(logprob),
        reason,
        7,
        "digest",
        support,
    )


def rollout(*turns, contract=RAW, reward=0.5):
    return Rollout("r", "g", TASK, turns, "text", Status.DONE, contract, reward)


def test_two_turns():
    row = flatten(rollout(turn([1, 2, 3], [0, 1, 1], [4, 5], [-0.1, -0.2]), turn([6], [2], [7], [-0.3])))
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


def test_supports_follow_their_tokens():
    contract = SamplingContract(top_k=2)
    first = Support(torch.tensor([4, 9, 5]), torch.tensor([0, 2, 3]))
    second = Support(torch.tensor([7, 8]), torch.tensor([0, 2]))
    row = flatten(
        rollout(
            turn([1], [0], [4, 5], [-1.0, 0.0], support=first),
            turn([6], [2], [7], [-1.0], support=second),
            contract=contract,
        )
    )
    assert [row.support.at(t).tolist() for t in range(5)] == [[], [4, 9], [5], [], [7, 8]]


def test_a_demonstration_is_under_supervised_terms_alone():
    prompt = Prompt(torch.tensor([1, 2]), torch.tensor([0, 1], dtype=torch.uint8))
    row = demonstration(TASK, prompt, torch.tensor([3, 257]), "d")
    assert row.supervised_mask.tolist() == [False, False, True, True]  # the stop token is trained
    assert not (row.policy_mask | row.kl_mask | row.value_mask).any()
    assert row.sampler_logprob.isnan().all()
    assert row.old_logprob.isnan().all()


def test_a_kept_rollout_becomes_a_demonstration_of_the_ids_it_drew():
    row = as_demonstration(rollout(turn([1, 2], [0, 1], [4, 257], [-0.1, -0.2])))
    assert row.token_ids.tolist() == [1, 2, 4, 257]
    assert row.origin.tolist() == [0, 1, Origin.DEMO, Origin.DEMO]
    assert row.reward == 0.5
    assert row.group_id == "g"
