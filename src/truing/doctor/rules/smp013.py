"""SMP013: A step samples other tasks, with other parameters, or forces other prefixes, than the recipe gives.

What: The tasks of a step are not those of the declared order, in which each epoch has every training
task once, in a shuffle by seed, stage and epoch. Tasks are left out, repeated within an epoch, drawn with
replacement, or in the order of the file. Or rollouts are sampled at another temperature than declared, and
all that is computed of them is, too. Or a group lacks rollouts that were sampled for it. Or other turns
begin with the forced prefix than the declared rate and their random numbers give.

Why it is silent: Each batch is valid, and the reward rises on the tasks that come. What is left out is never
seen, what is repeated counts more, and a file sorted by difficulty trains easy tasks first. A prefix whose
rate does not fall keeps the policy from ever beginning by itself.

How it is measured: An oracle computes the shuffle of the epoch a second time from the recipe's seed, and the
tasks of the step are compared with it one by one, at every step. The sampling parameters of each rollout are
compared with the recipe's. Each group must have the rollouts 0 to
`group_size` − 1, which their ids tell: if some of more are chosen by their reward, there are gaps. Each turn
has a random number of its own for the prefix, which is compared with the rate of the step.

Healthy look-alikes: Groups that `gates.equal_groups = "resample"` samples in addition. Steps that a guard
repeats have the same tasks again, as declared. A step at the end of an epoch has tasks of two shuffles.

Fix: Look for what draws tasks: a slice of the data set, a shuffle that is missing or has a seed of its own,
an index that counts otherwise after a resume.

References: docs/tasks.md
"""

from collections.abc import Iterator
from typing import Any

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim tasks out of the declared order, groups with other rollouts, and other forced prefixes."""
    tasks, prefixes = step.facts["tasks"], step.facts.get("forced_prefixes")
    if tasks["other"]:
        yield Claim(
            Verdict.PROVEN,
            f"{tasks['other']} of {tasks['asked']} tasks are not those that the seed gives this step",
            got=f"{tasks['got']} as task {tasks['at'] + 1}",
            expected=tasks["expected"],
            specificity=2.2,
        )
    if others := tasks.get("params", 0):
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(others, 'rollout has', 'rollouts have')} other sampling parameters than declared",
            got=tasks.get("drawn_with", ""),
            expected=tasks.get("declared", ""),
            specificity=2.8,
        )
    if incomplete := tasks.get("incomplete", 0):
        yield Claim(
            Verdict.PROVEN,
            f"{incomplete} of {tasks['asked']} groups do not have the rollouts that were sampled",
            got=f"{tasks.get('group', '')} has rollouts {', '.join(map(str, tasks.get('rollouts', ())))}",
            expected=f"0 to {tasks.get('size', 0) - 1}: each rollout counts, whatever its reward",
            specificity=2.6,
        )
    if prefixes and prefixes["other"]:
        yield Claim(
            Verdict.PROVEN,
            f"{prefixes['other']} of {prefixes['turns']} turns begin with the forced prefix, or without it,"
            " otherwise than the declared rate gives",
            got=f"{prefixes['forced']} with it; the first other one in {prefixes.get('rollout', '')}",
            expected=f"those whose random number is below {prefixes['rate']:.4g}",
            specificity=2.4,
        )


def _compared(**fact: Any) -> Step:
    return changed_step(example_step(), facts={"tasks": {"asked": 2, "other": 0} | fact})


def example() -> Step:
    """The second task is the first one again."""
    return _compared(other=1, at=1, got="t0", expected="t1")


def chosen_by_reward() -> Step:
    """Eight rollouts of a group were sampled, and the four best are kept."""
    return _compared(incomplete=1, group="0/grpo/0/0", rollouts=[1, 4, 5, 7], size=4)


def drawn_otherwise() -> Step:
    """All rollouts are sampled at another temperature."""
    return _compared(params=8, drawn_with="temperature=0.7", declared="temperature=1.0")


def always_forced() -> Step:
    """The share of forced prefixes does not fall."""
    prefixes = {"turns": 8, "forced": 4, "other": 3, "rate": 0.1, "rollout": "r1"}
    return changed_step(_compared(), facts={"forced_prefixes": prefixes})


def as_declared() -> Step:
    """Every task is the declared one."""
    return changed_step(
        _compared(), facts={"forced_prefixes": {"turns": 8, "forced": 1, "other": 0, "rate": 0.1}}
    )


RULE = Rule(
    code="SMP013",
    name="tasks-not-in-declared-order",
    kind="E",
    needs=("facts.tasks",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(as_declared,),
)
