"""The errors of sampler and trainer in units of measured rounding, token by token, in healthy steps.

    python -m dev.measure.rounding RECIPE [KEY=VALUE …]

Each error is a difference from a plain forward, nats. `rounding` is the standard deviation, over the
vocabulary, of what random rounding changes in that forward. doctor/rounding_tolerance.py uses the figures.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

import truing
from truing.config import load_recipe
from truing.doctor.oracle.forward import plain_logprobs
from truing.learner.learner import Learner
from truing.learner.optimizer_step import loss_mask
from truing.measurements import checked_rows, plain_forward
from truing.measurements.row_logits import row_logits
from truing.models.forward.rounding_noise import random_rounding
from truing.types.sample import Sample
from truing.types.token_facts import Plain


@torch.no_grad()
def errors_of(learner: Learner, rows: Sequence[Sample], trainer: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return rounding and errors of the trained tokens of some rows: [K] each, nats."""
    parts = []
    for index, row in enumerate(rows):
        place_K = loss_mask(row).nonzero()[:, 0]
        logits = row_logits(learner.model, row)
        logits_KV = logits(row.token_ids, place_K - 1).double()
        with random_rounding(learner.model, index):
            rounding_K = (logits(row.token_ids, place_K - 1).double() - logits_KV).std(dim=1)
        plain_K = plain_logprobs(logits, row, place_K.tolist())[0]
        sampler_K, trainer_K = row.sampler_logprob[place_K], trainer[row.sample_id][place_K]
        parts.append((rounding_K, sampler_K - plain_K, trainer_K - plain_K, sampler_K - trainer_K))
    names = ("rounding", "sampler", "trainer", "sampler - trainer")
    return {
        name: torch.cat(part).double() for name, part in zip(names, zip(*parts, strict=True), strict=True)
    }


def main() -> None:
    """Train with every audit, on all rows, and print the errors of all audited tokens."""
    source, *overrides = sys.argv[1:]
    measured: list[dict[str, Tensor]] = []
    plain_facts = plain_forward.plain_facts

    def watched(
        learner: Learner,
        rows: Sequence[Sample],
        batched: Mapping[str, Tensor],
        alone: Mapping[str, Tensor],
    ) -> Plain:
        measured.append(errors_of(learner, rows, batched))
        return plain_facts(learner, rows, batched, alone)

    plain_forward.plain_facts = watched
    checked_rows.MAX_ROWS, checked_rows.MAX_TOKENS = 1000, 10**9
    with tempfile.TemporaryDirectory() as folder:
        truing.train(
            load_recipe(source, ["doctor.budget=1", *overrides]),
            out=Path(folder) / "run",
            on_event=lambda *_: None,
        )
    errors = {name: torch.cat([each[name] for each in measured]) for name in measured[0]}
    most = errors["rounding"].max()
    print(f"{len(errors['rounding'])} tokens, {torch.get_num_threads()} threads")
    for name, error_K in errors.items():
        sizes, in_units = error_K.abs(), error_K.abs() / most
        print(
            f"{name}: median {sizes.median():.2g}, largest {sizes.max():.2g} nats;"
            f" in units of the largest rounding {in_units.median():.2g} and {in_units.max():.2g}"
        )


if __name__ == "__main__":
    main()
