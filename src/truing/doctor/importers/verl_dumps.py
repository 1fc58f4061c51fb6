"""verl's rollout dumps: prompts, answers and scores of each step, and the metrics that follow from them.

``RayPPOTrainer._dump_generations`` (verl 0.8, verl/trainer/ppo/ray_trainer.py) writes them to
``trainer.rollout_data_dir``: a file ``{step}.jsonl`` with a line per rollout: input, output, gts, score,
step, and the reward function's other results.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.doctor.importers.log import json_lines, to_number
from truing.errors import RecordError
from truing.types.sample import SampleFacts

FIELDS = ("input", "output", "score", "step")


def is_dump(record: Mapping[str, Any]) -> bool:
    """Return whether a line is a rollout."""
    return all(name in record for name in FIELDS)


def rollout_rows(path: Path) -> dict[int, list[SampleFacts]]:
    """Return the rollouts of a file, by step."""
    by_step = defaultdict[int, list[Mapping[str, Any]]](list)
    for where, record in json_lines(path):
        step = to_number(record.get("step"))
        if not is_dump(record) or step is None:
            raise RecordError(
                f"{where} is not a rollout of a dump",
                got=", ".join(record),
                expected=", ".join(FIELDS),
                remedy="remove other files from trainer.rollout_data_dir",
            )
        by_step[int(step)].append(record)
    return {step: _rows(rollouts) for step, rollouts in by_step.items()}


def _rows(rollouts: Sequence[Mapping[str, Any]]) -> list[SampleFacts]:
    """Return the rollouts of a step. A group is the rollouts with one prompt.

    A dump has no uid, so two tasks with the same prompt in one step look like one group. A prompt that
    recurs more often than most may be such a pair, and its rollouts get no group.
    """
    counts = Counter(str(rollout["input"]) for rollout in rollouts)
    # the smallest of equally common sizes: an unused group is better than a wrong one
    usual = min(statistics.multimode(counts.values()))
    groups = {text: f"g{i}" if count <= usual else "" for i, (text, count) in enumerate(counts.items())}
    return [_row(i, rollout, groups[str(rollout["input"])]) for i, rollout in enumerate(rollouts)]


def _row(index: int, rollout: Mapping[str, Any], group: str) -> SampleFacts:
    score = to_number(rollout["score"])
    return SampleFacts(
        sample_id=str(index),
        rollout_id=str(index),
        group_id=group,
        task_id="",
        family="",
        prompt_hash="",  # groups have one prompt by construction: a check would prove nothing
        prompt_length=0,
        turns=(),
        sampling_params=None,
        reward=math.nan if score is None else score,
        reward_parts={},
        status="",  # not dumped: a failed rollout has a score like any other
        truncated=False,
        text=str(rollout["output"]),
    )


def reward_metrics(rows: Sequence[SampleFacts]) -> dict[str, float]:
    """Return metrics of rewards and groups, as defined in truing/metrics/rollout_definitions.py.

    verl scores every rollout: one score that is not finite is that of the mean, as in its own log.
    """
    rewards = [row.reward for row in rows if math.isfinite(row.reward)]
    metrics = {"reward/mean": sum(row.reward for row in rows) / len(rows)} if rows else {}
    if len(rewards) > 1:
        metrics["reward/std"] = statistics.stdev(rewards)
    by_group = defaultdict[str, list[float]](list)
    for row in rows:
        if row.group_id and math.isfinite(row.reward):
            by_group[row.group_id].append(row.reward)
    groups = [each for each in by_group.values() if len(each) > 1]
    equal = [each[0] for each in groups if len(set(each)) == 1]
    if groups:
        metrics["group/zero_variance_share"] = len(equal) / len(groups)
        metrics["group/all_right_share"] = sum(reward >= 1 for reward in equal) / len(groups)
        metrics["group/all_wrong_share"] = sum(reward <= 0 for reward in equal) / len(groups)
    return metrics
