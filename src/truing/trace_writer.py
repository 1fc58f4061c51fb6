"""Writes what a reinforcement-learning step computed, for `truing check` to judge (docs/trace.md).

It needs numpy alone, takes tensors of any library, and is one file: install `truing-trace`, or copy this.

    writer = Writer("trace", producer="my trainer 1.2", setup={"algo": "grpo", "advantage": "group"})
    step = writer.step(
        number, ids=input_ids, attention=attention_mask, sampled=response_mask, loss_mask=response_mask,
        sampler_logprob=rollout_log_probs, old_logprob=old_log_probs, advantage=advantages, reward=rewards,
        group_id=uids,
    )
    ...
    log_prob = step.forward(log_prob, rows=rows, optimizer_step=k, micro_batch=m)  # before the loss
    ...
    writer.close()

A call never raises into training: what could not be written is counted, named once on stderr, and recorded in
``trace.json``. Only ``Writer(...)`` itself raises, at the start.
"""

import atexit
import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__version__ = "0.1.0"

FORMAT, VERSION = "truing-trace", 1


class Origin(IntEnum):
    """Where a token came from."""

    PROMPT = 0
    TEMPLATE = 1  # text that the chat template inserts after the prompt
    TOOL = 2  # a reply of the environment
    FORCED = 3  # the only token that was possible
    SAMPLED = 4
    DEMO = 5  # of a demonstration


TOKEN_STREAMS = ("sampler_logprob", "old_logprob", "ref_logprob", "advantage", "returns", "value")
"""Numbers of tokens: float32, NaN where a token has none."""

ROW_TEXTS = ("sample_id", "group_id", "prompt_id", "episode_id", "text", "finish_reason", "family")
ROW_NUMBERS = ("reward", "version")

ALIASES = {
    alias: name
    for name, aliases in {
        "ids": "input_ids sequences tokens",
        "attention": "attention_mask",
        "sampled": "response_mask",
        "loss_mask": "action_mask completion_mask token_mask",
        "sampler_logprob": "rollout_log_probs inference_logprobs generation_logprobs"
        " sampling_per_token_logps",
        "old_logprob": "old_log_probs prev_logprobs action_log_probs old_per_token_logps",
        "ref_logprob": "ref_log_prob ref_per_token_logps base_action_log_probs reference_policy_logprobs",
        "advantage": "advantages",
        "value": "values",
        "reward": "rewards",
        "group_id": "uid group_index",
    }.items()
    for alias in aliases.split()
}
"""Names that trainers use, and those of the format."""

MAPPINGS = ("numbers", "totals", "reward_parts")

PASS_STREAMS = ("new_logprob", "token_gradient", "entropy", "new_value")

DTYPES = {"int32": "I32", "uint8": "U8", "bool": "BOOL", "float32": "F32", "float64": "F64"}


class Writer:
    """Writes a trace into a folder, from one process; each rank has its own writer on the same folder."""

    def __init__(
        self,
        folder: str | Path,
        *,
        producer: str,
        setup: Mapping[str, Any] | None = None,
        rank: int | None = None,
        decode: Callable[[list[int]], Sequence[str]] | None = None,
        waiting: int = 4,
    ) -> None:
        """Create the folder.

        Args:
            folder: of the trace; a resumed training writes into the same one.
            producer: the trainer with its version.
            setup: declared settings, by the words of docs/trace.md.
            rank: of this process, if several write.
            decode: returns the text of each of some ids; texts of tokens make reports readable.
            waiting: steps that may wait for the disk; a further one is dropped, and counted.
        """
        self.folder, self.rank, self.decode = Path(folder), rank, decode
        self.head = {"format": FORMAT, "version": VERSION, "producer": producer, "setup": _plain(setup or {})}
        self.written, self.dropped = 0, 0
        self.problems: dict[str, int] = {}
        self.known_texts: set[int] = set()
        self.open_step: Step | None = None
        self.queue: queue.Queue[Step | None] = queue.Queue(waiting)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_head()
        self.thread = threading.Thread(target=self._write_steps, name="truing-trace", daemon=True)
        self.thread.start()
        atexit.register(self.close)

    def step(self, number: int, **given: Any) -> "Step":
        """Begin a step, and end the one before; see docs/trace.md for what may be given.

        ``ids`` are [B, L] with ``attention`` [B, L], or a list of B sequences. A stream has as many columns,
        or fewer, which then belong to the last ones, or is a list whose sequences belong to the last tokens
        of each row. ``advantage`` may be [B].
        """
        self._end_step()
        step = Step(self, number)
        self.guarded(f"step {number}", step.begin, given)
        self.open_step = step
        return step

    def close(self) -> None:
        """Write what is left; a second call does nothing."""
        self._end_step()
        if self.thread.is_alive():
            self.queue.put(None)
            self.thread.join()
            self.guarded("the end", self._write_head)
        atexit.unregister(self.close)

    def guarded(self, where: str, action: Callable[..., object], *given: Any) -> None:
        """Call an action; an error becomes a recorded problem."""
        try:
            action(*given)
        except Exception as error:  # noqa: BLE001 - training must not end because its trace cannot be written
            self.problem(where, f"{type(error).__name__}: {error}")

    def problem(self, where: str, what: str) -> None:
        """Count a problem; its first time is printed."""
        if what not in self.problems:
            print(f"truing-trace: {where}: {what}", file=sys.stderr)
        self.problems[what] = self.problems.get(what, 0) + 1

    def _end_step(self) -> None:
        step, self.open_step = self.open_step, None
        if step is None or not step.rows:
            return
        try:
            self.queue.put_nowait(step)
        except queue.Full:
            self.dropped += 1
            self.problem(f"step {step.number}", "dropped, since the disk is slower than training")

    def _write_steps(self) -> None:
        while (step := self.queue.get()) is not None:
            self.guarded(f"step {step.number}", self._write, step)

    def _write(self, step: "Step") -> None:
        suffix = "" if self.rank is None else f".r{self.rank}"
        arrays, facts = step.packed()
        write_file(self.folder / f"{step.number:06d}{suffix}.safetensors", arrays, facts)
        self.written += 1

    def _write_head(self) -> None:
        name = "trace.json" if not self.rank else f"trace.r{self.rank}.json"
        facts = {"written": self.written, "dropped": self.dropped, "problems": self.problems}
        _replace(self.folder / name, json.dumps(self.head | facts, default=str, indent=1).encode())


class Pass(NamedTuple):
    """A forward of one row in one optimizer step; its streams have a number for each token."""

    row: int
    optimizer_step: int
    micro_batch: int
    streams: dict[str, np.ndarray]


class Step:
    """A step that is being recorded."""

    def __init__(self, writer: Writer, number: int) -> None:
        self.writer, self.number = writer, number
        self.rows: list[np.ndarray] = []  # ids of each row, without padding
        self.kept: list[np.ndarray] | None = None  # which columns of a padded batch a row has
        self.columns, self.widths = 0, set[int]()  # of padded ids; of streams
        self.streams: dict[str, list[np.ndarray]] = {}
        self.facts: dict[str, Any] = {}
        self.passes: list[Pass] = []

    def begin(self, given: Mapping[str, Any]) -> None:
        """Take the rows of the step, and what is known of them."""
        named = {ALIASES.get(name, name): x for name, x in given.items() if x is not None}
        self._take_ids(named.pop("ids"), named.pop("attention", None))
        sampled, origin = named.pop("sampled", None), named.pop("origin", None)
        mask = named.pop("loss_mask", None)
        if mask is None and sampled is None:
            raise ValueError("one of `loss_mask` and `sampled` is needed")
        self.streams["loss_mask"] = self._mask("loss_mask", sampled if mask is None else mask)
        if origin is not None:
            self.streams["origin"] = self._tokens(origin, Origin.PROMPT, np.uint8)
        else:
            chosen = self._mask("sampled", mask if sampled is None else sampled)
            self.streams["origin"] = [_origin(row) for row in chosen]
        from_sampler = "loss_mask" if sampled is None else "sampler"
        self.facts["origin_source"] = from_sampler if origin is None else "roles"
        for name in [name for name in (*TOKEN_STREAMS, *ROW_TEXTS, *ROW_NUMBERS, *MAPPINGS) if name in named]:
            self.writer.guarded(f"step {self.number}: {name}", self._take, name, named.pop(name))
        if self.writer.decode is not None:
            self.facts["texts"] = self._new_texts()
        for name in named:
            self.writer.problem(f"step {self.number}", f"{name!r} is no name of the format: left out")

    def _take(self, name: str, x: Any) -> None:
        """Take a stream of tokens, a column of rows, or a mapping."""
        if name in TOKEN_STREAMS:
            self.streams[name] = self._tokens(x, of_rows=name == "advantage")
        elif name in MAPPINGS:
            self.facts[name] = _plain(x)
        else:
            self.facts[name] = self._of_rows(name, x)

    def forward(
        self,
        logprob: Any,
        *,
        rows: Sequence[int] | None = None,
        optimizer_step: int = 0,
        micro_batch: int = 0,
        entropy: Any = None,
        value: Any = None,
    ) -> Any:
        """Record the log-probabilities of a forward that trains, and later their gradient; return them.

        Args:
            logprob: [b, L], [b, L − 1] or a list; before the loss reads it.
            rows: its rows among those of the step; all by default.
            optimizer_step: within the step, from 0.
            micro_batch: within the optimizer step, from 0.
            entropy: of the same tokens, nats.
            value: of a critic, of the same tokens.
        """
        given = {"new_logprob": logprob, "entropy": entropy, "new_value": value}
        self.writer.guarded(f"step {self.number}", self._pass, given, rows, optimizer_step, micro_batch)
        return logprob

    def _pass(
        self, given: Mapping[str, Any], rows: Sequence[int] | None, optimizer_step: int, micro_batch: int
    ) -> None:
        chosen = list(range(len(self.rows))) if rows is None else [int(row) for row in rows]
        taken = {name: self._tokens(x, rows=chosen) for name, x in given.items() if x is not None}
        passes = [
            Pass(row, optimizer_step, micro_batch, {name: parts[i] for name, parts in taken.items()})
            for i, row in enumerate(chosen)
        ]
        self.passes += passes
        logprob = given["new_logprob"]
        is_list = isinstance(logprob, (list, tuple))
        watched = zip(logprob, ([each] for each in passes), strict=True) if is_list else [(logprob, passes)]
        for tensor, of in watched:
            if getattr(tensor, "requires_grad", False):
                tensor.register_hook(partial(self._hear, of))

    def _hear(self, passes: Sequence[Pass], gradient: Any) -> None:
        """Take the gradient of the log-probabilities of some passes."""
        self.writer.guarded(f"step {self.number}: a gradient", self._take_gradient, passes, gradient)

    def _take_gradient(self, passes: Sequence[Pass], gradient: Any) -> None:
        one = gradient if gradient.ndim == 2 else [gradient]  # of one row in a list
        parts = self._tokens(one, rows=[each.row for each in passes])
        for each, part in zip(passes, parts, strict=True):  # a further backward adds
            each.streams["token_gradient"] = each.streams.get("token_gradient", 0.0) - part

    def _take_ids(self, ids: Any, attention: Any) -> None:
        if (ragged := _ragged(ids)) is not None:
            self.rows = [_array(row).astype(np.int32) for row in ragged]
            return
        padded = _array(ids)
        if attention is None:
            raise ValueError("ids are padded, so `attention` is needed, of the same shape; or a list of rows")
        present = _array(attention).astype(bool)
        if present.shape != padded.shape:
            raise ValueError(f"ids are {padded.shape}, and attention is {present.shape}")
        self.kept, self.columns = [row.nonzero()[0] for row in present], padded.shape[1]
        self.rows = [row[kept].astype(np.int32) for row, kept in zip(padded, self.kept, strict=True)]

    def _tokens(
        self,
        x: Any,
        fill: float = np.nan,
        dtype: Any = np.float32,
        of_rows: bool = False,
        rows: Sequence[int] | None = None,
    ) -> list[np.ndarray]:
        """Return a stream of each of some rows: as many values as the row has tokens."""
        chosen = range(len(self.rows)) if rows is None else rows
        if (ragged := _ragged(x)) is not None:
            parts = [_array(part) for part in ragged]
        else:
            whole = _array(x)
            if of_rows and whole.ndim == 2 and whole.shape[1] == 1 and self.columns > 2:
                whole = whole[:, 0]
            if whole.ndim == 1 and of_rows:
                whole = np.repeat(whole[:, None], max(map(len, self.rows)), axis=1)
                parts = [part[: len(self.rows[row])] for part, row in zip(whole, chosen, strict=True)]
            elif self.kept is None:
                raise ValueError("a stream of rows that were given as a list is a list too")
            elif whole.ndim != 2 or whole.shape[1] > self.columns:
                raise ValueError(f"a stream of {self.columns} columns has the shape {whole.shape}")
            else:
                self._check_width(whole.shape[1], rows is not None)
                filled = np.full((len(whole), self.columns), fill, dtype=np.float64)
                filled[:, self.columns - whole.shape[1] :] = whole
                parts = [part[self.kept[row]] for part, row in zip(filled, chosen, strict=True)]
        if len(parts) != len(chosen):
            raise ValueError(f"a stream has {len(parts)} rows, and {len(chosen)} are expected")
        return [self._to_end(part, row, fill).astype(dtype) for part, row in zip(parts, chosen, strict=True)]

    def _check_width(self, columns: int, forward: bool) -> None:
        """Raise at a forward that has other columns than the step: it was trimmed, on an unknown side."""
        if forward and columns not in (self.columns, self.columns - 1, *self.widths):
            raise ValueError(
                f"a forward has {columns} columns, and the step {self.columns}: give a list of rows instead"
            )
        if not forward:
            self.widths.add(columns)

    def _mask(self, name: str, x: Any) -> list[np.ndarray]:
        """Return a mask of each row: 1 where a value is not 0."""
        parts = self._tokens(x, 0, np.float64)
        if any(((part != 0) & (part != 1)).any() for part in parts):
            self.writer.problem(f"step {self.number}", f"{name} has values between 0 and 1: each counts as 1")
        return [(part != 0).astype(np.uint8) for part in parts]

    def _to_end(self, part: np.ndarray, row: int, fill: float) -> np.ndarray:
        """Return values for all tokens of a row: the given ones belong to the last tokens."""
        missing = len(self.rows[row]) - len(part)
        if missing < 0:
            raise ValueError(f"row {row} has {len(self.rows[row])} tokens, and a stream has {len(part)}")
        return np.concatenate([np.full(missing, fill), part]) if missing else part

    def _of_rows(self, name: str, x: Any) -> list[Any]:
        if hasattr(x, "detach") or isinstance(x, np.ndarray):
            array = _array(x)
            values = (array.sum(1) if name == "reward" and array.ndim == 2 else array).tolist()
        else:
            values = [_plain(value) for value in x]
        if len(values) != len(self.rows):
            raise ValueError(f"{name} has {len(values)} values, and the step {len(self.rows)} rows")
        return values if name in ROW_NUMBERS else [str(value) for value in values]

    def _new_texts(self) -> dict[str, str]:
        """Return the texts of ids that no earlier step had."""
        assert self.writer.decode is not None
        new = sorted({int(i) for row in self.rows for i in np.unique(row)} - self.writer.known_texts)
        self.writer.known_texts.update(new)
        return dict(zip(map(str, new), self.writer.decode(new), strict=True)) if new else {}

    def packed(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays and the facts of the file."""
        arrays = {
            "token_ids": np.concatenate(self.rows),
            "row_lengths": np.array([len(row) for row in self.rows], dtype=np.int32),
        }
        arrays |= {name: np.concatenate(parts) for name, parts in self.streams.items()}
        if "reward" in self.facts:
            arrays["reward"] = np.array(self.facts.pop("reward"), dtype=np.float64)
        passes = sorted(self.passes, key=lambda each: each[:3])
        if passes:
            columns = np.array([each[:3] for each in passes], dtype=np.int32)
            names = ("pass.sample", "pass.optimizer_step", "pass.micro_batch")
            arrays |= {name: columns[:, i].copy() for i, name in enumerate(names)}
            arrays["pass.rank"] = np.full(len(passes), self.writer.rank or 0, dtype=np.int32)
        for name in PASS_STREAMS:
            if any(name in each.streams for each in passes):
                absent = [np.full(len(self.rows[each.row]), np.nan, np.float32) for each in passes]
                parts = [each.streams.get(name, none) for each, none in zip(passes, absent, strict=True)]
                arrays[f"pass.{name}"] = np.concatenate(parts)
        return arrays, {"step": self.number, **self.facts}


def write_file(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write arrays and facts as a safetensors file; a reader sees all of it, or none."""
    header: dict[str, Any] = {"__metadata__": {"trace": json.dumps(facts, default=str)}}
    at = 0
    for name, array in arrays.items():
        kind, end = DTYPES[str(array.dtype)], at + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    _replace(path, struct.pack("<Q", len(text)) + text + body)


def _replace(path: Path, data: bytes) -> None:
    unfinished = path.with_name(path.name + ".part")
    with open(unfinished, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def _origin(chosen: np.ndarray) -> np.ndarray:
    """Return the origin of tokens: before the first sampled one is the prompt, others are replies."""
    first = int(chosen.argmax()) if chosen.any() else len(chosen)
    others = np.where(np.arange(len(chosen)) < first, Origin.PROMPT, Origin.TOOL)
    return np.where(chosen > 0, Origin.SAMPLED, others).astype(np.uint8)


def _plain(x: Any) -> Any:
    """Return numbers in place of tensors and arrays, at any depth."""
    if isinstance(x, Mapping):
        return {str(name): _plain(each) for name, each in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(each) for each in x]
    return _array(x).tolist() if hasattr(x, "detach") or isinstance(x, (np.ndarray, np.generic)) else x


def _ragged(x: Any) -> Sequence[Any] | None:
    """Return the rows of a list or of a nested tensor; None of a padded batch."""
    if getattr(x, "is_nested", False):
        return x.unbind()
    return x if isinstance(x, (list, tuple)) else None


def _array(x: Any) -> np.ndarray:
    """Return a copy of an array or tensor on the CPU; half precision is widened."""
    if hasattr(x, "detach"):
        x = x.detach()
        x = x.double() if x.is_floating_point() else x
        x = x.cpu().numpy()
    return np.array(x)
