"""Write a run directory of any size in about a minute, to test readers of runs.

    python -m dev.measure.big_run FOLDER [--steps 100000] [--samples 10] [--live 0] [--seed 0]

Truing trains two steps; their record is repeated for every step, with other numbers and text. Every step
reads as in any run. --live leaves the last steps in segments, as in a running run.
"""

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import truing
from dev.measure.big_rows import ANSWER, rows
from truing.analysis.current_events import mid_stage_name
from truing.doctor.live_doctor import finding_event
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.record import RunReader
from truing.record.compaction import RowGroupWriter
from truing.record.index import SegmentRef
from truing.record.segments import encode_table, table_of
from truing.record.steps_reader import declared_numbers
from truing.record.store import EVENTS, PARQUET, RECIPE, ROLLOUTS, RUN, STEPS
from truing.record.writer import segment_name
from truing.utils.atomic_files import sha256
from truing.utils.jsonl import dump_json

STAGE, TRAINED = "grpo", 2
CHUNK = 64  # steps whose rows are written at a time


def train(out: Path, samples: int) -> None:
    """Train a run of two steps of ``samples`` samples."""
    recipe = {
        "name": "big",
        "stages": [STAGE],
        "model": {"name": "tiny", "threads": 1},
        "env": {"name": "arithmetic", "kinds": ["first-3"], "train": 200, "eval": 50, "system": ""},
        "sampling": {"max_new_tokens": ANSWER[1] - 1},
        "eval": {"tasks": 50, "temperature": 1.0},
        STAGE: {"steps": TRAINED, "learning_rate": 1e-3, "prompts_per_step": 1, "group_size": samples},
    }
    truing.train(recipe, out=out, on_event=lambda *_: None)


def lines(
    rng: np.random.Generator, like: dict[str, Any], refs: Sequence[SegmentRef], mean: np.ndarray
) -> Iterator[str]:
    """Yield lines of steps.jsonl: a random walk with spikes from the numbers of ``like``."""
    names, start = zip(*like["metrics"].items(), strict=True)
    noise = rng.standard_normal((len(refs), len(names)), np.float32)
    factor = np.exp(np.cumsum(noise, axis=0) / np.float32(2 * len(refs) ** 0.5) + noise / 20)
    factor[rng.random(factor.shape, np.float32) < 3e-4] *= 8
    numbers = factor * np.array(start)
    numbers[:, names.index("reward/mean")] = mean
    numbers_format = ", ".join(json.dumps(name) + ": %.7g" for name in names)
    tail = f'"seconds": {json.dumps(like["seconds"])}, "facts": {json.dumps(like["facts"])}' + "}\n"
    for ref, row in zip(refs, numbers.tolist(), strict=True):
        segment = json.dumps({"file": ref.file, "rows": ref.rows, "sha256": ref.sha256})
        yield (
            f'{{"step": {ref.step}, "stage": "{STAGE}", "loss_label": "{like["loss_label"]}", '
            f'"metrics": {{{numbers_format % tuple(row)}}}, "segment": {segment}, {tail}'
        )


def events(trained: RunReader, steps: int, finished: bool) -> Iterator[dict[str, Any]]:
    """Yield the events: the stage, evaluations, some findings, and the end."""
    known = {event.kind: event for event in trained.events()}
    start, every = known["stage"].time, max(1, steps // 20)
    names = sorted(declared_numbers(trained.events()))
    yield {"time": start, "kind": "numbers", "payload": {"names": names}}
    yield {"time": start, "kind": "stage", "payload": {"stage": STAGE, "steps": steps, "first_step": 0}}
    for step in range(0, steps + finished, every):
        rate = 0.1 + 0.8 * step / steps
        estimate = {"mean": rate, "low": rate - 0.1, "high": rate + 0.1, "tasks": 50}
        payload = dict(known["eval"].payload) | {"name": mid_stage_name(STAGE, step), "estimate": estimate}
        yield {"time": start + step, "kind": "eval", "payload": payload}
        if step % (5 * every) == every:
            claim = Claim(Verdict.SUSPECT, "the answers became shorter", "12 tokens", "40 tokens")
            finding = finding_event(Finding("LEN001", "length-collapse", STAGE, step, claim))
            yield {"time": start + step, "kind": "finding", "payload": finding}
    if finished:
        yield {"time": start + steps, "kind": "finished", "payload": dict(known["finished"].payload)}


def write_rows(
    out: Path, rng: np.random.Generator, like: pa.Table, reward: np.ndarray, live: int
) -> list[SegmentRef]:
    """Write the rows of each step, with rewards [steps, samples]; return their segments."""
    steps, samples = reward.shape
    refs: list[SegmentRef] = []
    with open(out / PARQUET, "wb") as handle, closing(RowGroupWriter(handle)) as writer:
        for first in range(0, steps - live, CHUNK):
            last = min(first + CHUNK, steps - live)
            chunk_refs = [
                SegmentRef(STAGE, i, segment_name(STAGE, i), samples, sha256(b"step %d" % i))
                for i in range(first, last)
            ]
            writer.add(chunk_refs, rows(rng, like, first, reward[first:last]))
            refs += chunk_refs
    for step in range(steps - live, steps):
        data = encode_table(rows(rng, like, step, reward[step : step + 1]))
        (out / ROLLOUTS / segment_name(STAGE, step)).write_bytes(data)
        refs.append(SegmentRef(STAGE, step, segment_name(STAGE, step), samples, sha256(data)))
    return refs


def write_run(out: Path, steps: int, samples: int, live: int, seed: int) -> None:
    """Write the run."""
    train(out, samples)
    trained, rng = RunReader(out), np.random.default_rng(seed)
    like = table_of(trained.find_table(STAGE, 0))
    line, facts, new_events = (
        trained.steps()[-1].to_json(),
        trained.run_json(),
        events(trained, steps, live == 0),
    )
    data = b"".join(dump_json(event) + b"\n" for event in new_events)
    facts["recipe"][STAGE]["steps"] = steps
    (out / RUN).write_bytes(dump_json(facts, indent=2))
    (out / RECIPE).write_text(trained.recipe().replace(f"steps = {TRAINED}\n", f"steps = {steps}\n"))
    (out / EVENTS).write_bytes(data)
    shutil.rmtree(out / "checkpoints")
    chance = np.linspace(0.1, 0.9, steps) + 0.05 * np.sin(np.arange(steps) / 200)
    reward = (rng.random((steps, samples)) < chance[:, None]).astype(float)
    refs = write_rows(out, rng, like, reward, live)
    with open(out / STEPS, "w", encoding="ascii") as handle:
        handle.writelines(lines(rng, line, refs, reward.mean(axis=1)))


def main() -> None:
    """Write the run of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name, default in {"steps": 100_000, "samples": 10, "live": 0, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    write_run(given.folder, given.steps, given.samples, given.live, given.seed)


if __name__ == "__main__":
    main()
