"""Evaluations count the best of several answers in place of their mean."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def evaluate(name, rewards, groups, passes_at=None):
        best = [replace(each, rollouts=(max(each.rollouts, key=lambda one: one.reward),)) for each in groups]
        return real(name, rewards, best, passes_at)

    return evaluate


FAULT = Fault(
    name="evaluated-best",
    numbers=(102,),
    what="evaluations count the best of several answers, not their mean",
    plant=lambda: patched("truing.learner.session:evaluate", _wrong),
    expected=(),
    changes={"eval.samples": 4},
    refusal="the evaluation has other means than declared",
)
