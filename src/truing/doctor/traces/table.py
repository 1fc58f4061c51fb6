"""The files of a step as one table. What follows from rows is derived here, and never read."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import torch
from torch import Tensor

from truing.doctor.evidence import Setup
from truing.doctor.facts.sampler_mismatch import sampler_mismatch
from truing.doctor.importers.metric_names import ours_of, trainer_of, without_prefix
from truing.doctor.traces.step_file import StepFile
from truing.errors import RecordError
from truing.metrics.step import (
    entropy_metrics,
    kl_metrics,
    reward_metrics,
    token_metrics,
    value_metrics,
)
from truing.types.facts import Facts
from truing.types.passes import PASS_COLUMNS, Passes
from truing.types.sample import SampleFacts, TurnSpan
from truing.types.status import FinishReason, Status
from truing.types.step_table import StepTable, starts_of
from truing.types.token import Origin

LOGPROBS = ("sampler_logprob", "old_logprob", "ref_logprob")

REASONS = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL,
    "tool": FinishReason.TOOL,
    "length": FinishReason.LENGTH,
    "error": FinishReason.ERROR,
    "abort": FinishReason.ERROR,
    "unknown": FinishReason.UNKNOWN,
}
"""Finish reasons of servers and trainers; without one of these the end of a row follows from its tokens."""

SUPERVISED = ("sft", "rft")


def table_of(files: Sequence[StepFile], setup: Setup) -> StepTable:
    """Return a step from the files of its processes."""
    rows, streams = _joined(files)
    supervised = setup.algo in SUPERVISED
    origin = streams["origin"]
    if supervised and all(each.facts.origin_source != "roles" for each in files):
        origin = torch.where(origin == Origin.SAMPLED, Origin.DEMO, origin).to(torch.uint8)
    streams["origin"] = origin
    mask = streams.pop("loss_mask").bool()
    demo = (origin == Origin.DEMO) | torch.full_like(mask, supervised)
    streams |= {"policy_mask": mask & ~demo, "kl_mask": mask & ~demo, "supervised_mask": mask & demo}
    sampled = origin == Origin.SAMPLED
    for name in LOGPROBS:
        if name in streams:  # 0 stands for no number where the policy chose nothing
            streams[name] = streams[name].masked_fill(~sampled & (streams[name] == 0), math.nan)
    if "advantage" in streams:
        streams["advantage"] = streams["advantage"].masked_fill(~streams["policy_mask"], math.nan)
    starts = starts_of([len(ids) for ids in streams["token_ids"].split(rows.lengths)])
    samples = [
        _sample(rows, i, streams["token_ids"][a:b], origin[a:b], setup)
        for i, (a, b) in enumerate(pairwise(starts))
    ]
    table = StepTable(
        stage=setup.algo or "train",
        step=files[0].facts.step - 1,
        metrics=_numbers(files),
        facts=_facts(files),
        samples=samples,
        starts=starts,
        streams={name: each for name, each in streams.items() if not _is_empty(each)},
        passes=_passes(files, rows),
    )
    derived = _derived(table)
    return replace(
        table, metrics={**derived, **table.metrics} if is_part(files) else {**table.metrics, **derived}
    )


def is_part(files: Sequence[StepFile]) -> bool:
    """Return whether the trace has a part of the step's rows."""
    totals = next((file.facts.totals for file in files if file.facts.totals), None)
    return totals is not None and totals.rows > len({name for file in files for name in file.sample_ids})


class _Rows:
    """The rows of all files: of a row that several files have, the first one."""

    def __init__(self, files: Sequence[StepFile]) -> None:
        self.place: dict[str, tuple[StepFile, int]] = {}
        for file in files:
            for i, name in enumerate(file.sample_ids):
                self.place.setdefault(name, (file, i))
        self.names = list(self.place)
        self.number = {name: i for i, name in enumerate(self.names)}
        self.lengths = [file.lengths[i] for file, i in self.place.values()]

    def text(self, column: str, row: int) -> str | None:
        """Return a text of a row; None if its file has none."""
        file, i = self.place[self.names[row]]
        values: list[str] | None = getattr(file.facts, column)
        return None if values is None else values[i]


def _joined(files: Sequence[StepFile]) -> tuple[_Rows, dict[str, Tensor]]:
    """Return the rows of all files, and their streams: one after the other, NaN where a file has none."""
    rows = _Rows(files)
    names = dict.fromkeys(name for file in files for name in file.tensors if not name.startswith("pass."))
    streams = {}
    for name in names:
        if name not in ("row_lengths", "reward"):
            parts: dict[str, Tensor] = {}
            for file in files:
                if name in file.tensors:
                    own = file.tensors[name].split(file.lengths)
                    for sample, part in zip(file.sample_ids, own, strict=True):
                        first = parts.setdefault(sample, part)
                        if name == "token_ids" and not torch.equal(first, part):
                            raise RecordError(
                                f"{file.path}: sample {sample} has other tokens than in another file",
                                got=f"{len(part)} tokens",
                                expected="the same tokens in each file of the step",
                            )
            lengths = zip(rows.names, rows.lengths, strict=True)
            streams[name] = torch.cat([parts.get(n, torch.full((k,), math.nan)) for n, k in lengths])
    streams["token_ids"] = streams["token_ids"].long()
    return rows, streams


def _sample(rows: _Rows, row: int, ids: Tensor, origin: Tensor, setup: Setup) -> SampleFacts:
    """Return what is known of a row, and what follows from its tokens."""
    file, i = rows.place[rows.names[row]]
    chosen = ((origin == Origin.SAMPLED) | (origin == Origin.DEMO)).nonzero()
    length = int(chosen[0]) if len(chosen) else len(ids)
    digest = hashlib.sha256(repr(ids[:length].tolist()).encode()).hexdigest()[:16]
    version = file.facts.version[i] if file.facts.version else None
    weights = rows.text("weights", row)  # "" is unknown
    if weights is None:
        weights = "" if version is None else f"version {version}"
    reason = REASONS.get(rows.text("finish_reason", row) or "")
    turns = _turns(ids, origin, setup, reason, (version or 0, weights))
    # a demonstration has no finish reason of its own
    cut = bool(turns) and FinishReason.LENGTH in (reason, turns[-1].finish_reason)
    name = rows.names[row]
    prompt = rows.text("prompt_id", row) or digest
    return SampleFacts(
        sample_id=name,
        rollout_id=rows.text("episode_id", row) or name,
        group_id=rows.text("group_id", row) or "",
        task_id=prompt,
        family=rows.text("family", row) or "",
        prompt_hash=digest,
        prompt_length=length,
        turns=turns,
        sampling_params=None,
        reward=float(file.tensors["reward"][i]) if "reward" in file.tensors else math.nan,
        reward_parts={part: values[i] for part, values in file.facts.reward_parts.items()},
        truncated=cut,
        status=Status.TRUNCATED if cut else Status.DONE if _ended(turns) else "",
        text=rows.text("text", row) or "",
        messages=tuple(file.facts.messages[i]) if file.facts.messages else (),
    )


def _ended(turns: Sequence[TurnSpan]) -> bool:
    """Return whether it is known how a row ended."""
    return bool(turns) and turns[-1].finish_reason is not FinishReason.UNKNOWN


def _turns(
    ids: Tensor, origin: Tensor, setup: Setup, reason: FinishReason | None, weights: tuple[int, str]
) -> tuple[TurnSpan, ...]:
    """Return the runs of tokens that the policy chose.

    Args:
        ids: of the row, [T].
        origin: of its tokens, [T].
        setup: the declared settings.
        reason: for which the last run ended; None is unknown.
        weights: version and digest of those that sampled.
    """
    runs, at = list[tuple[int, int]](), 0
    for kind, run in groupby(origin.tolist()):
        length = len(list(run))
        if kind in (Origin.SAMPLED, Origin.DEMO):
            runs.append((at, at + length))
        at += length
    turns = []
    for number, (start, end) in enumerate(runs):
        last = number == len(runs) - 1
        demonstrated = int(origin[start]) == Origin.DEMO
        stopped = int(ids[end - 1]) in (setup.stop_ids or ())
        full = setup.max_new_tokens is not None and end - start >= setup.max_new_tokens
        ended = FinishReason.DEMO if demonstrated else FinishReason.STOP if stopped else FinishReason.UNKNOWN
        if ended is FinishReason.UNKNOWN and full:
            ended = FinishReason.LENGTH
        if last and reason is not None and not demonstrated:
            ended = reason
        turns.append(TurnSpan(start, end, ended, *weights))
    return tuple(turns)


def _passes(files: Sequence[StepFile], rows: _Rows) -> Passes:
    """Return the passes of all files by sample and optimizer step; one of each sample if no file has any."""
    with_passes = [file for file in files if "pass.sample" in file.tensors]
    if not with_passes:
        return Passes.one_each(len(rows.names), {})
    names = dict.fromkeys(name for file in with_passes for name in file.tensors if name.startswith("pass."))
    streams = [name for name in names if name.removeprefix("pass.") not in ("sample", *PASS_COLUMNS)]
    columns: dict[str, list[int]] = {name: [] for name in ("sample", *PASS_COLUMNS)}
    parts: dict[str, list[Tensor]] = {name: [] for name in streams}
    for file in with_passes:
        own = file.tensors["pass.sample"].tolist()
        columns["sample"] += [rows.number[file.sample_ids[i]] for i in own]
        for name in PASS_COLUMNS:
            columns[name] += file.tensors[f"pass.{name}"].tolist()
        lengths = [file.lengths[i] for i in own]
        for name in streams:
            missing = torch.full((sum(lengths),), math.nan)
            parts[name] += file.tensors.get(name, missing).split(lengths)
    count = len(columns["sample"])
    order = sorted(range(count), key=lambda k: (columns["sample"][k], columns["optimizer_step"][k]))
    placed = {name: torch.tensor([values[k] for k in order]) for name, values in columns.items()}
    joined = {
        name.removeprefix("pass."): torch.cat([values[k] for k in order]) if order else torch.zeros(0)
        for name, values in parts.items()
    }
    return Passes(**placed, streams=joined)


def _numbers(files: Sequence[StepFile]) -> dict[str, float]:
    """Return the trainer's numbers by our names; those of unknown names are left as they are."""
    theirs: dict[str, float] = {}
    for file in reversed(files):
        theirs |= {without_prefix(name): value for name, value in file.facts.numbers.items()}
    trainer = trainer_of(theirs.keys())
    return {ours_of(trainer, name) or name: value for name, value in theirs.items()}


def _facts(files: Sequence[StepFile]) -> Facts:
    """Return what the trainer's audit measured; of a fact that several files have, the first one."""
    facts = Facts()
    for file in reversed(files):
        facts |= file.facts.facts
    return facts


def _derived(table: StepTable) -> dict[str, float]:
    """Return the metrics that follow from the rows."""
    _, first = next(table.at_each_optimizer_step(), (0, table))  # before the policy moves
    metrics = reward_metrics(table.samples) | token_metrics(table) | kl_metrics(first)
    if not any(sample.status for sample in table.samples):  # how rows ended is not known
        metrics.pop("truncated/share", None)
    metrics |= entropy_metrics(table) | value_metrics(table) | sampler_mismatch(table)
    known = table.stream("advantage")[table.policy]
    known = known[~known.isnan()]
    return metrics | ({"advantage/max_abs": float(known.abs().max())} if len(known) else {})


def _is_empty(stream: Tensor) -> bool:
    return stream.is_floating_point() and bool(stream.isnan().all())
