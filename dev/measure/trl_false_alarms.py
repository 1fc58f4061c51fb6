"""False alarms of the doctor's audit on healthy TRL runs.

    python -m dev.measure.trl_false_alarms [--runs 40] [--seed 0] [--steps 4] [--only TEXT] [--json FILE]

Each run is a small random model (``MODELS``) under a trainer of TRL with one way to compute (``PRECISIONS``),
one set of options (``RUNS`` of ``trl_runs.py``), all weights or an adapter, and its own seed. A healthy
trainer must end with no PROVEN and no EVIDENCE, and at most one run in twenty with a SUSPECT.
Needs ``pip install -e .[bench]``; a run takes some three seconds on a core.
"""

import argparse
import contextlib
import io
import itertools
import json
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers

from dev.measure.trl_runs import (
    FLOAT32,
    NOT_BELOW_AN_ADAPTER,
    RUNS,
    WIDE,
    lora,
    of_config,
    tokenizer_that_marks_turns,
    trainer_of,
)
from truing.doctor.verdict import FINDING_VERDICTS
from truing.integrations.trl import audit
from truing.models.tiny import tiny_model

PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "fp32": FLOAT32,
    "autocast bf16": {"bf16": True},  # TRL's default: weights in float32
    "bf16 weights": {"bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}},
    "pure bf16": {"bf16": False, "model_init_kwargs": {"dtype": "bfloat16"}},
    "pure fp16": {"bf16": False, "model_init_kwargs": {"dtype": "float16"}, "adam_epsilon": 1e-4},
}

MODELS: Mapping[str, Callable[[int], Any]] = {
    "tiny": tiny_model,
    "llama": of_config("llama", **WIDE),
    "qwen3": of_config("qwen3", tie_word_embeddings=True, **WIDE),
    "qwen2": of_config("qwen2"),
    "gemma2": of_config("gemma2", sliding_window=16, query_pre_attn_scalar=16, **WIDE),
    "mixtral": of_config("mixtral", num_local_experts=4, **WIDE),
    "dropout": of_config("llama", attention_dropout=0.1, **WIDE),
}
"""None learns positions: TRL's GRPO counts pads on the left among them, and SMP005 is PROVEN of GPT-2."""


@dataclass(frozen=True)
class Case:
    """One run."""

    trainer: str
    model: str
    precision: str
    options: str
    adapter: bool
    seed: int

    def __str__(self) -> str:
        what = "LoRA" if self.adapter else "all weights"
        return f"{self.trainer}, {self.options}, {self.precision}, {what}, {self.model}, seed {self.seed}"


def every() -> Iterator[Case]:
    """Yield all combinations of trainer, options, precision and adapter; models alternate."""
    models = itertools.cycle(MODELS)
    for trainer, options in RUNS.items():
        for name, precision, adapter in itertools.product(options, PRECISIONS, (False, True)):
            if not (adapter and name in NOT_BELOW_AN_ADAPTER):
                yield Case(trainer, next(models), precision, name, adapter, 0)


def found_in(case: Case, steps: int) -> tuple[dict[str, str], Any]:
    """Return each rule with a finding, with its verdict; and the audit."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        model = Path(folder) / "model"
        MODELS[case.model](case.seed).save_pretrained(model)
        tokenizer_that_marks_turns().save_pretrained(model)
        torch.manual_seed(case.seed)
        own = {"output_dir": f"{folder}/out", "max_steps": steps}
        trainer = trainer_of(
            case.trainer,
            model,
            {**own, **PRECISIONS[case.precision], **RUNS[case.trainer][case.options]},
            seed=case.seed,
            adapter=lora() if case.adapter else None,
        )
        run_audit = audit(trainer)
        trainer.train()
    results = run_audit.diagnosis.results()
    return {each.code: str(each.verdict) for each in results if each.verdict in FINDING_VERDICTS}, run_audit


def main() -> None:
    """Run the cases, and count verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40, help="sampled cases; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="of the draw, and of the first run")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--json", type=Path, default=None, help="a line per run, for later")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    cases = [case for case in every() if args.only in str(case)]
    if args.runs:
        cases = random.Random(args.seed).sample(cases, min(args.runs, len(cases)))
    verdicts: Counter[str] = Counter()
    for number, case in enumerate(cases):
        seeded = replace(case, seed=args.seed + number)
        found, run_audit = found_in(seeded, args.steps)
        verdicts.update(set(found.values()))
        print(f"{seeded}: {found or 'silent'}", flush=True)
        if args.json is not None:
            facts = [past.facts for past in run_audit.history.past]
            kept = [
                {name: each.get(name) for name in ("plain", "row_gradients", "audit", "replay")}
                for each in facts
            ]
            with args.json.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"case": str(seeded), "found": found, "facts": kept}, default=str) + "\n"
                )
    counts = ", ".join(f"{verdict} in {count}" for verdict, count in sorted(verdicts.items()))
    print(f"{len(cases)} healthy runs: {counts or 'silent'}")


if __name__ == "__main__":
    main()
