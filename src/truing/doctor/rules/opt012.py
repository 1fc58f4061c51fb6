"""OPT012: A batch of an earlier step was trained again.

What: Samples of this step have the names of samples of an earlier step of the stage. The trainer kept the
batch instead of sampling a new one.

Why it is silent: The batch is valid, and the loss of a repeated batch falls quickly. Ratios drift away from
1 as in any run with several passes, and the clip hides the rest.

How it is measured: Truing names each sample by stage, step, task and rollout. The rule compares the names of
this step's first samples with those of every step before.

Healthy look-alikes: A new epoch: the same tasks, under new names. A stage that a guard set back repeats its
steps under their old names; the record no longer has the undone ones.

Fix: Look for code that keeps a batch: a cache, an iterator created once, an early return.

References: https://arxiv.org/abs/2505.24298, docs/control.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.facts.batch_fingerprint import batch_fingerprint
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim names of an earlier step's batch."""
    names = dict.fromkeys(name for name, *_ in step.facts["batch"]["rows"])  # in order
    for earlier in step.past_of_stage:
        rows = earlier.facts["batch"]["rows"] if "batch" in earlier.facts else ()
        known = {name for name, *_ in rows}
        if again := [name for name in names if name in known]:
            yield Claim(
                Verdict.PROVEN,
                f"samples of step {earlier.step + 1} are trained again",
                got=f"{len(again)} of {len(names)} samples, such as {again[0]}",
                expected="samples sampled for this step",
                specificity=2.7,
            )
            return


def batched(step: Step, number: int, names: str, total: int | None = 24, alike: int | None = None) -> Step:
    """Return the step with a batch whose sample names have this prefix; by default no task has a copy."""
    rows = [
        (f"{names}{index}", step.tokens["token_ids"][where], row.prompt_length)
        for index, row, where in step.slices()
    ]
    groups = {row.group_id for row in step.samples}
    tasks = {row.prompt_hash for row in step.samples}
    renamed = {index: {"sample_id": name, "rollout_id": name} for index, (name, *_) in enumerate(rows)}
    about = {"drawn": len(groups), "alike": alike or len(tasks), "total": total}
    fact = batch_fingerprint(rows, number=number, tasks=tasks, **about)
    return changed_step(step, samples=renamed, facts={"batch": fact})


def example() -> Step:
    """The second step trains the first step's batch."""
    step = batched(example_step(), 0, "grpo/0/")
    return changed_step(step, past=[past_step(0, facts={"batch": step.facts["batch"]})])


def next_epoch() -> Step:
    """The same tasks, an epoch later."""
    earlier = batched(example_step(answers=(5, 4, 4, 5, 3, 5, 5, 4)), 0, "grpo/0/").facts["batch"]
    return changed_step(batched(example_step(), 1, "grpo/1/"), past=[past_step(0, facts={"batch": earlier})])


RULE = Rule(
    code="OPT012",
    name="batch-of-an-earlier-step",
    kind="E",
    needs=("facts.batch",),
    taints=("sft", "policy", "critic"),
    applies=lambda step: step.setup.trainer == "truing",
    judge=judge,
    example=example,
    lookalikes=(next_epoch,),
)
