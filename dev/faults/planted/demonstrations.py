"""Demonstrations on their way from tasks to the supervised loss, and the loss itself."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from truing.utils.rng import seed_of

LONGER_SFT = {"sft.steps": 8}


def _turns_of(change):
    """Demonstrate other turns; ``change`` gets a task's own turns, the task, and those of the task before."""

    def make(real):
        before = []

        def demonstration_turns(task):
            own = real(task)
            if not before or before[-1][0] != task.task_id:
                before.append((task.task_id, own))
            return change(own, task, before[-2][1] if len(before) > 1 else own)

        return demonstration_turns

    return patched("truing.rollouts.turn_sources:demonstration_turns", make)


ANSWER_OF_LAST_TASK = Fault(
    name="answer-of-last-task",
    numbers=(115,),
    what="each task is demonstrated by the answer to the one before it",
    plant=lambda: _turns_of(lambda own, task, before: before),
    expected=("TOK007",),
    changes=LONGER_SFT,
)


def _some_empty(own, task, before):
    empty = seed_of(task.task_id, "planted") % 10 == 0
    return tuple(replace(turn, content="") for turn in own) if empty else own


ONE_IN_TEN_EMPTY = Fault(
    name="one-in-ten-empty",
    numbers=(115,),
    what="one demonstration in ten is empty",
    plant=lambda: _turns_of(_some_empty),
    expected=("TOK007",),
    changes=LONGER_SFT,
)


ANSWER_WITHOUT_ITS_START = Fault(
    name="answer-without-its-start",
    numbers=(115,),
    what="demonstrations lose their first character",
    plant=lambda: _turns_of(
        lambda own, task, before: tuple(replace(turn, content=turn.content[1:]) for turn in own)
    ),
    expected=("TOK007",),
    changes=LONGER_SFT,
)


ANSWER_TWICE = Fault(
    name="answer-twice",
    numbers=(115,),
    what="demonstrations have their answer twice",
    plant=lambda: _turns_of(
        lambda own, task, before: tuple(replace(turn, content=2 * turn.content) for turn in own)
    ),
    expected=("TOK007",),
    changes=LONGER_SFT,
)


def _without_stop(real):
    def demonstration(ids):
        cut = int(ids.sum()) % 5 == 0
        return real(ids[:-1] if cut else ids)

    return demonstration


SOME_STOPS_CUT = Fault(
    name="some-stops-cut",
    numbers=(115,),
    what="one demonstration in five lacks its stop",
    plant=lambda: patched("truing.rollouts.turn_sources:demonstrated_ids", _without_stop),
    expected=("TOK007", "MSK008"),
    changes=LONGER_SFT,
    refusal="the model does not learn to stop",
)


def _with(term):
    """Add a term to the supervised loss."""

    def make(real):
        def supervised_term(weight):
            declared = real(weight)

            def loss(batch, scores, divisor):
                return declared.loss(batch, scores, divisor) + term(batch, scores, divisor)

            return replace(declared, loss=loss)

        return supervised_term

    return patched("truing.algos.sft:supervised_term", make)


ENTROPY_IN_SFT = Fault(
    name="entropy-in-sft",
    numbers=(116,),
    what="supervised fine-tuning has a small bonus for entropy, which nothing declares",
    plant=lambda: _with(
        lambda batch, scores, divisor: -0.01 * (scores.entropy * batch.supervised_mask).sum() / divisor
    ),
    expected=("MSK007", "OPT006"),
    changes=LONGER_SFT,
)


LABELS_SMOOTHED = Fault(
    name="labels-smoothed",
    numbers=(116,),
    what="the supervised loss has the square of log-probabilities in it, which nothing declares",
    plant=lambda: _with(
        lambda batch, scores, divisor: (
            0.01 * (scores.logprob * batch.supervised_mask).square().sum() / divisor
        )
    ),
    expected=("MSK007",),
    changes=LONGER_SFT,
)


ENTROPY_SHARPENED_IN_SFT = Fault(
    name="entropy-sharpened-in-sft",
    numbers=(116,),
    what="supervised fine-tuning is penalized for entropy, a little",
    plant=lambda: _with(
        lambda batch, scores, divisor: 0.003 * (scores.entropy * batch.supervised_mask).sum() / divisor
    ),
    expected=("MSK007", "OPT006"),
    changes=LONGER_SFT,
)


def _first_beside_rollouts(real):
    def tasks_of_step(sampler, stage, step, count):
        return real(sampler, stage, 0 if stage.endswith("/bootstrap") else step, count)

    return tasks_of_step


SAME_BESIDE_ROLLOUTS = Fault(
    name="same-beside-rollouts",
    numbers=(),
    what="the demonstrations beside rollouts are those of the first step, in each step",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.tasks_of_step", _first_beside_rollouts),
    expected=("SMP013",),
    changes={"bootstrap.steps": 8, "bootstrap.coef": 0.1, "grpo.steps": 3},
)


def _cooler(real):
    def play_demonstrations(sampler, *args):
        groups = real(sampler, *args)
        return [replace(group, rollouts=tuple(map(_at_07, group.rollouts))) for group in groups]

    return play_demonstrations


def _at_07(rollout):
    return replace(rollout, sampling_params=replace(rollout.sampling_params, temperature=0.7))


DEMONSTRATIONS_COOLER = Fault(
    name="demonstrations-cooler",
    numbers=(),
    what="demonstrations are trained at a temperature of 0.7",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.play_demonstrations", _cooler),
    expected=("SMP013",),
)
