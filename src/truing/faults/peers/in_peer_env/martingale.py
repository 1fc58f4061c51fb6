"""Run by the Python of martingale: the tokens of a run on stdin, alarms and lines of its doctor on stdout."""

import hashlib
import json
import sys
import tempfile
import warnings
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from martingale.diagnostics import decompose
from martingale.diagnostics.staleness import diagnosis
from martingale.integrations._trl_callback import MartingaleMonitor
from martingale.record import Recorder, SamplerConfig

LINES = {
    "lag-0 tokens the engine was >=50% sure": "doctor: different weights",
    "no confident token disagrees": "doctor: floor in the tail",
    "disagree on ordinary tokens": "doctor: floor on ordinary tokens",
    "largest token gap": "doctor: a token gap",
    "Staleness dominates": "doctor: staleness dominates",
    "effective sample size is": "doctor: sample size",
    "scored by an OLDER step": "doctor: negative lag",
}
"""Phrases that identify the sentences of its doctor; other sentences are no findings."""


def record(run: dict[str, Any], folder: str) -> tuple[Any, list[Any]]:
    """Write the run to its token record, and run its monitor after each update."""
    config = {"engine": "truing", "dtype": "float32", **run["sampler"]}
    drawn_by = SamplerConfig(
        logprobs_mode="processed_logprobs",
        logprobs_source="engine_sampling",
        temperature_applied=True,
        **config,
    )
    scored_by = SamplerConfig(logprobs_source="trainer_scores", temperature_applied=True, **config)
    flight = SimpleNamespace(recorder=Recorder(folder), stats={"sequences": 0})
    monitor = MartingaleMonitor(flight, halt_on_error=False)
    within = [each["inner_step"] for update in run["updates"] for each in update["answers"]]
    inner = 1 + max(within, default=0)
    for number, update in enumerate(run["updates"]):
        _record_update(flight, update, number * inner, drawn_by, scored_by)
        monitor.on_step_end((number + 1) * inner)
    return flight.recorder.ledger, monitor.alarms


def _record_update(flight: Any, update: dict[str, Any], step: int, drawn_by: Any, scored_by: Any) -> None:
    recorder, trained = flight.recorder, {}
    drawn = recorder.publish_revision(_digest(update["weights"]), _digest("bytes"), drawn_by, step=step)
    for index, answer in enumerate(update["answers"]):
        with recorder.sequence(0, f"step{step}/row{index}", answer["prompt_ids"]) as sequence:
            for token_id, logprob in zip(answer["token_ids"], answer["sampler"], strict=True):
                sequence.token(drawn.digest, token_id, logprob)
            sequence.reward(answer["advantage"])
        flight.stats["sequences"] += 1
        if not answer["trainer"]:
            continue
        inner = answer["inner_step"]
        if inner not in trained:  # the record has digests of whole updates alone
            weights = update["weights"] if inner == 0 else f"{update['weights']} + {inner}"
            trained[inner] = recorder.publish_revision(
                _digest(weights), _digest("bytes"), scored_by, step=step + inner
            )
        recorder.score(sequence.record.digest, trained[inner].digest, answer["trainer"])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def findings_of(run: dict[str, Any]) -> list[dict[str, str]]:
    """Return the first alarm of each kind and level, then the findings of its doctor."""
    with tempfile.TemporaryDirectory() as folder:
        ledger, alarms = record(run, folder)
        lines = diagnosis(decompose(ledger))
    first = {(each.kind, each.level): each.message for each in reversed(alarms)}
    findings = [{"finding": kind, "severity": level, "what": what} for (kind, level), what in first.items()]
    named = {name: line for line in lines for words, name in LINES.items() if words in line}
    return findings + [{"finding": name, "severity": "line", "what": line} for name, line in named.items()]


warnings.simplefilter("ignore")  # each alarm is a warning too
print(json.dumps({"version": version("martingale"), "said": findings_of(json.load(sys.stdin))}))
