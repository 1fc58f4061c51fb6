"""A run directory of any size, in about a minute: for whoever reads runs.

    python bench/big_run.py FOLDER [--steps 100000] [--samples 10] [--live 0] [--seed 0]

Two updates are trained by truing itself; what they recorded is told again for every step, with other numbers
and words. Every step can be read as of any run. --live leaves the last ones in segments, as a run has them
that is not at its end.
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
from big_rows import ANSWER, rows

import truing
from truing.analysis.current_events import mid_stage_name
from truing.doctor.live_doctor import finding_event
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.record import RunReader
from truing.record.compaction import RowGroupWriter
from truing.record.index import SegmentRef
from truing.record.segments import encode_table, table_of
from truing.record.store import EVENTS, PARQUET, RECIPE, ROLLOUTS, RUN, STEPS
from truing.record.writer import segment_name
from truing.utils.atomic_files import sha256
from truing.utils.jsonl import dump_json

STAGE, TRAINED = "grpo", 2
CHUNK = 64  # steps whose rows are made at one time


def train(out: Path, samples: int) -> None:
    """A run of two updates of so many samples: what is told again."""
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
    rng: np.random.Generator, like: dict[str, Any], places: Sequence[SegmentRef], mean: np.ndarray
) -> Iterator[str]:
    """Lines of steps.jsonl whose numbers wander away from where those of ``like`` are, with spikes."""
    names, start = zip(*like["metrics"].items(), strict=True)
    noise = rng.standard_normal((len(places), len(names)), np.float32)
    factor = np.exp(np.cumsum(noise, axis=0) / np.float32(2 * len(places) ** 0.5) + noise / 20)
    factor[rng.random(factor.shape, np.float32) < 3e-4] *= 8
    numbers = factor * np.array(start)
    numbers[:, names.index("reward/mean")] = mean
    told = ", ".join(json.dumps(name) + ": %.7g" for name in names)
    tail = f'"seconds": {json.dumps(like["seconds"])}, "facts": {json.dumps(like["facts"])}' + "}\n"
    for place, row in zip(places, numbers.tolist(), strict=True):
        segment = json.dumps({"file": place.file, "rows": place.rows, "sha256": place.sha256})
        yield (
            f'{{"step": {place.step}, "stage": "{STAGE}", "loss_label": "{like["loss_label"]}", '
            f'"metrics": {{{told % tuple(row)}}}, "segment": {segment}, {tail}'
        )


def events(trained: RunReader, steps: int, finished: bool) -> Iterator[dict[str, Any]]:
    """The stage, an evaluation now and then, some findings, and the end."""
    known = {event.kind: event for event in trained.events()}
    start, every = known["stage"].time, max(1, steps // 20)
    yield {"time": start, "kind": "numbers", "payload": dict(known["numbers"].payload)}
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
    """Write the rows of each step, [steps, samples] rewards, and tell where they lie."""
    steps, samples = reward.shape
    places: list[SegmentRef] = []
    with open(out / PARQUET, "wb") as handle, closing(RowGroupWriter(handle)) as writer:
        for first in range(0, steps - live, CHUNK):
            last = min(first + CHUNK, steps - live)
            told_of = [
                SegmentRef(STAGE, i, segment_name(STAGE, i), samples, sha256(b"step %d" % i))
                for i in range(first, last)
            ]
            writer.add(told_of, rows(rng, like, first, reward[first:last]))
            places += told_of
    for step in range(steps - live, steps):
        data = encode_table(rows(rng, like, step, reward[step : step + 1]))
        (out / ROLLOUTS / segment_name(STAGE, step)).write_bytes(data)
        places.append(SegmentRef(STAGE, step, segment_name(STAGE, step), samples, sha256(data)))
    return places


def write_run(out: Path, steps: int, samples: int, live: int, seed: int) -> None:
    """Write the run."""
    train(out, samples)
    trained, rng = RunReader(out), np.random.default_rng(seed)
    like = table_of(STAGE, 0, trained.samples(STAGE, 0))
    line, facts, told_events = (
        trained.steps()[-1].to_json(),
        trained.run_json(),
        events(trained, steps, live == 0),
    )
    data = b"".join(dump_json(event) + b"\n" for event in told_events)
    facts["recipe"][STAGE]["steps"] = steps
    (out / RUN).write_bytes(dump_json(facts, indent=2))
    (out / RECIPE).write_text(trained.recipe().replace(f"steps = {TRAINED}\n", f"steps = {steps}\n"))
    (out / EVENTS).write_bytes(data)
    shutil.rmtree(out / "checkpoints")
    chance = np.linspace(0.1, 0.9, steps) + 0.05 * np.sin(np.arange(steps) / 200)
    reward = (rng.random((steps, samples)) < chance[:, None]).astype(float)
    places = write_rows(out, rng, like, reward, live)
    with open(out / STEPS, "w", encoding="ascii") as handle:
        handle.writelines(lines(rng, line, places, reward.mean(axis=1)))


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name, default in {"steps": 100_000, "samples": 10, "live": 0, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    told_to = parser.parse_args()
    write_run(told_to.folder, told_to.steps, told_to.samples, told_to.live, told_to.seed)


if __name__ == "__main__":
    main()
