from truing.rollout.collect import collect
from truing.sample.hf import HFSampler
from truing.types import Origin, SamplingContract, Status, Task

TASK = Task("t", "f", ({"role": "user", "content": "hello"},))


def draw(tiny, tasks, **contract):
    return collect(
        tasks,
        group_size=3,
        sampler=HFSampler(tiny.model, context_length=tiny.context_length),
        tokenizer=tiny.tokenizer,
        contract=SamplingContract(stop_ids=tiny.stop_ids, **contract),
        grade=lambda rollout: (float(len(rollout.text)), {"length": float(len(rollout.text))}),
        key=("test",),
    )


def test_a_task_drawn_twice_makes_two_groups_with_their_own_answers(tiny):
    one, two = draw(tiny, [TASK, TASK], max_new_tokens=8)
    assert one.group_id != two.group_id
    answers = [tuple(r.turns[0].token_ids.tolist()) for group in (one, two) for r in group.rollouts]
    assert len(set(answers)) == 6


def test_rollouts_carry_their_grade_status_and_prompt(tiny):
    (group,) = draw(tiny, [TASK], max_new_tokens=2)
    for rollout in group.rollouts:
        assert rollout.reward == rollout.reward_parts["length"] == len(rollout.text)
        stopped = int(rollout.turns[0].token_ids[-1]) in tiny.stop_ids
        assert rollout.status is (Status.DONE if stopped else Status.TRUNCATED)
        said = rollout.turns[0].context_ids[rollout.turns[0].context_origin == Origin.PROMPT]
        assert tiny.tokenizer.decode(said) == "hello"
