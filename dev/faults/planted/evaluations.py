"""Evaluations that measure something else."""

from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from dev.faults.fault import Fault, patched
from dev.faults.sampler_distribution import drawn_under
from truing.analysis.intervals import interval


def _evaluated_best(real):
    def evaluation_of(name, rewards, groups, passes_at=None):
        best = [replace(each, rollouts=(max(each.rollouts, key=lambda one: one.reward),)) for each in groups]
        return real(name, rewards, best, passes_at)

    return evaluation_of


EVALUATED_BEST = Fault(
    name="evaluated-best",
    numbers=(102,),
    what="evaluations count the best of several answers, not their mean",
    plant=lambda: patched("truing.trainer.evaluate:evaluation_of", _evaluated_best),
    expected=(),
    changes={"eval.samples": 4},
    refusal="the evaluation has other means than declared",
)


def _evaluated_leniently(real):
    def grade(rollout, *args):
        graded = real(rollout, *args)
        return replace(graded, reward=max(graded.reward, 0.5)) if "/eval/" in rollout.group_id else graded

    return grade


EVALUATED_LENIENTLY = Fault(
    name="evaluated-leniently",
    numbers=(102,),
    what="in evaluations a wrong answer earns half",
    plant=lambda: patched("truing.rollouts.collect:_grade", _evaluated_leniently),
    expected=(),
    refusal="the evaluation has other rewards than declared",
)


def _over_rollouts(real):
    def estimate(evaluation):
        rollouts = [reward for earned in evaluation.earned.values() for reward in earned]
        return interval(rollouts, evaluation.bounds, 1)

    return estimate


ESTIMATE_OVER_ROLLOUTS = Fault(
    name="estimate-over-rollouts",
    numbers=(102,),
    what="the interval of an evaluation counts each rollout as a task",
    plant=lambda: patched("truing.analysis.evaluation:Evaluation.estimate", _over_rollouts),
    expected=(),
    changes={"eval.samples": 4, "eval.tasks": 8, "eval.temperature": 1.0},
    refusal="the evaluation has other estimate than declared",
)


PASSES_ABOVE_ALONE = Fault(
    name="passes-above-alone",
    numbers=(),
    what="an answer that earns exactly what passes does not pass",
    plant=lambda: patched(
        "truing.analysis.evaluation:Evaluation.task_pass_at",
        lambda real: lambda evaluation, k: dict.fromkeys(real(evaluation, k), 0.0),
    ),
    expected=(),
    changes={"eval.samples": 4, "eval.tasks": 8, "eval.temperature": 1.0},
    refusal="the evaluation has other pass rates than declared",
)


def _evaluated_greedily(real):
    def draw(sampler, tasks, group_size, sampling_params, key, *args, **kwargs):
        params = replace(sampling_params, temperature=0.0) if key == ("eval",) else sampling_params
        return real(sampler, tasks, group_size, params, key, *args, **kwargs)

    return draw


EVALUATED_GREEDILY = Fault(
    name="evaluated-greedily",
    numbers=(102,),
    what="evaluations are greedy, although a temperature is declared",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.collect_rollouts", _evaluated_greedily),
    expected=(),
    changes={"eval.temperature": 1.0},
    refusal="the evaluation has other sampling parameters than declared",
)


def _evaluated_other_draws(real):
    calls = count()

    def draw(sampler, tasks, group_size, sampling_params, key, *args, **kwargs):
        own = (*key, next(calls)) if key == ("eval",) else key
        return real(sampler, tasks, group_size, sampling_params, own, *args, **kwargs)

    return draw


EVALUATED_OTHER_DRAWS = Fault(
    name="evaluated-other-draws",
    numbers=(102,),
    what="each evaluation has random numbers of its own",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.collect_rollouts", _evaluated_other_draws),
    expected=(),
    refusal="the evaluation has other tasks, rollouts or random numbers than declared",
)


def _unpublished(real):
    return lambda session, version: {}


def _evaluated_stale(real):
    def evaluate(loop, name, stage, step):
        with patched("truing.trainer.session:Session.publish", _unpublished):
            return real(loop, name, stage, step)

    return evaluate


EVALUATED_STALE = Fault(
    name="evaluated-stale",
    numbers=(102,),
    what="evaluations sample with the weights of an earlier publication",
    plant=lambda: patched("truing.trainer.loop:Loop.evaluate", _evaluated_stale),
    expected=(),
    refusal="the evaluation has other weights than declared",
)


def _evaluated_without_system(real):
    def bare(task):
        return replace(task, messages=tuple(each for each in task.messages if each["role"] != "system"))

    def draw(sampler, tasks, group_size, sampling_params, key, *args, **kwargs):
        tasks_without_system = [bare(task) for task in tasks] if key == ("eval",) else tasks
        return real(sampler, tasks_without_system, group_size, sampling_params, key, *args, **kwargs)

    return draw


EVALUATED_WITHOUT_SYSTEM = Fault(
    name="evaluated-without-system",
    numbers=(68,),
    what="evaluations lack the system message of training",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.collect_rollouts", _evaluated_without_system),
    expected=(),
    refusal="differently from the environment's prompt",
)


@contextmanager
def _in_evaluations(make):
    """Draw otherwise while an evaluation is sampled."""
    evaluating = []

    def marked(real):
        def evaluate(*args):
            evaluating.append(True)
            try:
                return real(*args)
            finally:
                evaluating.clear()

        return evaluate

    def drawing(real):
        other = make(real)
        return lambda *args: (other if evaluating else real)(*args)

    with (
        patched("truing.trainer.evaluate:evaluate", marked),
        patched("truing.engines.local.running_batch:draw_ids", drawing),
    ):
        yield


EVALUATED_ALMOST_GREEDILY = Fault(
    name="evaluated-almost-greedily",
    numbers=(102,),
    what="evaluations are sampled almost greedily, and recorded at the declared temperature",
    plant=lambda: _in_evaluations(drawn_under(temperature=0.2)),
    expected=(),
    changes={"eval.temperature": 1.0, "eval.tasks": 8, "sampling.max_new_tokens": 12},
    refusal="the evaluation has other draws than declared",
)


EVALUATED_AT_RANDOM = Fault(
    name="evaluated-at-random",
    numbers=(102,),
    what="evaluations are sampled at temperature 1, and recorded as greedy",
    plant=lambda: _in_evaluations(drawn_under(temperature=1.0)),
    expected=(),
    changes={"eval.tasks": 8, "sampling.max_new_tokens": 12},
    refusal="the evaluation has other draws than declared",
)


def _answers_of_the_next(real):
    def evaluation_of(*args):
        evaluation = real(*args)
        names = [*evaluation.answers]
        answers = [evaluation.answers[name] for name in (*names[1:], names[0])]
        return replace(evaluation, answers=dict(zip(names, answers, strict=True)))

    return evaluation_of


ANSWERS_OF_THE_NEXT = Fault(
    name="answers-of-the-next",
    numbers=(102,),
    what="an evaluation has each task with the answers of the next",
    plant=lambda: patched("truing.trainer.evaluate:evaluation_of", _answers_of_the_next),
    expected=(),
    changes={"eval.temperature": 1.0},
    refusal="the evaluation has other answers than declared",
)
