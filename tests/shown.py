"""Runs for the board: folders that nobody trained, whose every number is known."""

import copy
import math
from dataclasses import replace

import torch
from recorded import make_sample, make_table
from runs import MINI

from truing.config import resolve, to_toml
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
    """An update with these numbers; its samples are named by stage, step and place."""
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
