"""Runs for the board: folders that nobody trained, whose every number is known."""

import copy
import json
import math
from dataclasses import asdict, replace

import torch
from recorded import make_sample, make_table
from runs import MINI

from truing.analysis.evaluation import Evaluation
from truing.config import resolve, to_toml
from truing.lab.forks.arms import Arm
from truing.lab.forks.plan import FOLDER, PLAN, Plan
from truing.record import RunWriter
from truing.types.sample import Sample

NAN = math.nan


def table(**changes):
    """MINI with changes in its parts."""
    made = copy.deepcopy(MINI)
    for key, change in changes.items():
        made[key] = {**made.get(key, {}), **change} if isinstance(change, dict) else change
    return made


def facts_of(**changes):
    """What run.json says of a run with this recipe."""
    recipe = resolve(table(**changes))
    return {
        "name": recipe.name,
        "created": "2026-01-02T03:04:05Z",
        "recipe": recipe.model_dump(mode="json"),
        "sampling_params": {"temperature": 1.0},
        "model": {"name": "tiny", "path": "", "digest": "d"},
        "bos_id": 1,
        "tools": [],
        "judged": {},
        "versions": {},
        "machine": {"device": "cpu"},
        "tokenizer": "tokenizer",
    }


def opened_run(folder, **changes) -> RunWriter:
    """A new run that is open for writing."""
    writer = RunWriter(folder)
    facts = facts_of(**changes)
    writer.write_recipe(to_toml(resolve(table(**changes))))
    writer.write_run(facts)
    return writer


def changed(sample: Sample, **known) -> Sample:
    """A sample with other facts or streams; lists become tensors."""
    facts = {name: torch.tensor(each) if isinstance(each, list) else each for name, each in known.items()}
    return replace(sample, **facts)


def write(writer, step, stage="grpo", rows=None, seconds=None, **known):
    """A step with these numbers; its samples are named by stage, step and place."""
    rows = rows or [make_sample(f"0/{stage}/{step}/0/{i}", 4, seed=step + i) for i in range(2)]
    seconds = seconds or {"forward": 0.25, "backward": 0.5}
    writer.write_step(make_table(step, rows, stage, seconds=seconds, **known))


def finding(code="RWD001", verdict="SUSPECT", stage="grpo", step=0, **told):
    """What the event of a finding says."""
    said = {"code": code, "name": "some-fault", "verdict": verdict, "stage": stage, "step": step}
    said |= {"sample_id": "", "start": 0, "end": 0, "what": f"{code} at {step}", "got": "1", "expected": "2"}
    said |= {"remedy": "mend it", "log10_odds": None, "text": "a text"} | told
    spans = [[said["start"], said["end"]]] if said["end"] > said["start"] else []
    return {"marks": {said["sample_id"]: spans} if said["sample_id"] else {}} | said


def evaluation(name, mean):
    """What the event of an evaluation says."""
    return {"name": name, "estimate": {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, "tasks": 8}}


def graded(name, paid, second, stage="grpo", step=0, answers=None):
    """What the event of an evaluation says of tasks with one answer each: what both graders give it."""
    tasks = [f"t{i}" for i in range(len(paid))]
    made = Evaluation(
        name,
        reward=dict(zip(tasks, paid, strict=True)),
        parts={},
        answers=dict(zip(tasks, ([each] for each in answers or tasks), strict=True)),
        failed={},
        bounds=(0.0, 1.0),
        earned=dict(zip(tasks, ([each] for each in paid), strict=True)),
        second=dict(zip(tasks, ([each] for each in second), strict=True)),
        stage=stage,
        step=step,
    )
    known = made.by_second_grader()
    estimates = {"second_estimate": asdict(known.estimate())} if known else {}
    return asdict(made) | {"estimate": asdict(made.estimate())} | estimates


def forked_run(folder, parent, rewards, changes=(), finished=True):
    """A fork of a run after two of its steps, which trains with these rewards, one each step."""
    with opened_run(folder, stages=["grpo"], eval={"tasks": 0}) as writer:
        facts = facts_of(stages=["grpo"], eval={"tasks": 0})
        known = {"run": parent, "stage": "grpo", "step": 2, "changes": list(changes), "started": True}
        writer.rewrite(to_toml(resolve(facts["recipe"])), facts | {"parent": known})
        writer.write_event("stage", stage="grpo", steps=2 + len(rewards), first_step=0)
        for step, reward in enumerate([0.5, 0.5, *rewards]):
            write(writer, step, "grpo", None, None, **{"reward/mean": reward})
        if finished:
            writer.write_event("finished")


ARMS = (
    Arm("three times the rate", ("grpo.learning_rate=0.003",), "the rate is 0.001"),
    Arm("a third of the rate", ("grpo.learning_rate=0.0003",), "the rate is 0.001"),
)


def experiment(root, effects, pairs, name="run"):
    """A run, and the experiment on it: forks of two steps, whose rewards differ by these effects."""
    with opened_run(root / name, stages=["grpo"], eval={"tasks": 0}) as writer:
        for step in range(2):
            write(writer, step, "grpo", None, None, **{"reward/mean": 0.5})
        writer.write_event("finished")
    plan = Plan("grpo", 2, 2, ARMS, ("larger groups: no memory",), 0.5, 0.05)
    folder = root / FOLDER.format(name)
    for pair in range(pairs):
        for arm, effect in zip(plan.names, (0.0, *effects), strict=True):
            reward = 0.5 + 0.01 * pair + effect
            changes = next((each.changes for each in ARMS if each.name == arm), ())
            forked_run(folder / plan.fork_name(arm, pair), f"../../{name}", [0.0, reward], changes)
    (folder / PLAN).write_text(json.dumps(asdict(plan)))
    return plan
