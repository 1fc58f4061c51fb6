"""Which closed forms of the doctor hold on healthy runs of TRL, release by release.

    python -m dev.measure.conformance FOLDER

Installs each of ``RELEASES`` into the folder without its dependencies, in front of the torch and
transformers of this environment. A process per release trains each run of ``runs()`` for some steps with the
audit beside it, and writes what every rule with a closed form says. Prints ``docs/conformance.md``, which
``make conformance`` writes. A run takes a second on a core.
"""

import argparse
import contextlib
import datetime
import importlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from dev.measure.conformance_page import page
from dev.measure.trl_runs import (
    FLOAT32,
    RUNS,
    WIDE,
    Options,
    lora,
    model_that_ends,
    of_config,
    tokenizer_that_marks_turns,
    trainer_of,
)
from truing.doctor.rules import RULES
from truing.doctor.verdict import FINDING_VERDICTS, RuleResult, Verdict
from truing.integrations.trl import audit

RELEASES = {
    "1.13.0": "2026-09-10",
    "1.14.2": "2026-10-06",
    "1.15.0": "2026-10-08",
    "1.16.0": "2026-10-15",
}
"""TRL's releases, the newest patch of each, with their days on PyPI."""

STEPS = 5

EXACT = ("E", "C", "M")
"""Kinds of rules whose verdict is no matter of chance."""

PACKAGES = ("torch", "transformers", "peft", "datasets", "accelerate")

LOSSES = {
    "GRPO": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "SFT": ("nll", "dft", "chunked_nll"),
}
"""Every ``loss_type`` of the measured releases."""

TWICE: Options = {"num_iterations": 2, "learning_rate": 1e-2}
"""The second pass over a generation has ratios far from 1."""

SEQUENCE: Options = {"importance_sampling_level": "sequence"}

OF_EACH_LOSS: tuple[Options, ...] = (
    {},
    TWICE,
    {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    {"per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": 2},
    {"beta": 0.1},
    SEQUENCE | TWICE,
)

CORRECTIONS: tuple[Options, ...] = (
    {"epsilon_high": 0.5} | TWICE,
    {"delta": 2.0} | TWICE,
    {"delta": 1.1} | TWICE,
    {"top_entropy_quantile": 0.25},
    {"top_entropy_quantile": 0.25, "entropy_coef": 0.01},
    {"use_bias_correction_kl": True, "beta": 0.1} | TWICE,
    {"use_bias_correction_kl": True, "beta": 0.1} | SEQUENCE | TWICE,
    {"off_policy_mask_threshold": 0.05} | TWICE,
    {"mask_truncated_completions": True},
    {"mask_truncated_completions": True, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
    {"scale_rewards": "batch"},
    {"scale_rewards": "none"},
    {"multi_objective_aggregation": "normalize_then_sum"},
    {"entropy_coef": 0.01},
    {"temperature": 0.7},
    {"top_k": 20},
    {"sync_ref_model": True, "ref_model_sync_steps": 2, "beta": 0.1},
    {"gradient_accumulation_steps": 2, "steps_per_generation": 3, "loss_type": "grpo"},
    {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
    {"cast_lm_head_to_fp32": True},
    {"gradient_checkpointing": True},
    {"max_grad_norm": 0.0},
    {"weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 2},
)


class Run(NamedTuple):
    """One run: a trainer, its options, and what it trains."""

    trainer: str
    options: Options
    adapter: bool = False
    model: str = "llama"

    def __str__(self) -> str:
        told = [f"{name}={value}" for name, value in self.options.items()]
        told += ["LoRA"] if self.adapter else []
        told += [] if self.model == "llama" else [self.model]
        return f"{self.trainer}: {', '.join(told) or 'defaults'}"


NO_DROPOUT = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), 0.0)

MODELS = {"llama": model_that_ends, "GPT-2": of_config("gpt2", n_layer=3, n_head=4, **NO_DROPOUT, **WIDE)}
"""GPT-2 learns an embedding of each position."""


def runs() -> Iterator[Run]:
    """Yield every run."""
    for loss in LOSSES["GRPO"]:
        for changes in OF_EACH_LOSS:
            yield Run("GRPO", {"loss_type": loss} | changes)
    for changes in CORRECTIONS:
        yield Run("GRPO", changes)
    for options in RUNS["RLOO"].values():
        yield Run("RLOO", options)
    for options in (*RUNS["SFT"].values(), {"loss_type": "chunked_nll"}):
        yield Run("SFT", options)
    for trainer in RUNS:
        yield Run(trainer, {}, adapter=True)
        yield Run(trainer, {}, model="GPT-2")
    yield Run("GRPO", {"beta": 0.1} | TWICE, adapter=True)
    yield Run("RLOO", {"beta": 0.1}, adapter=True)
    yield Run("SFT", {"packing": True, "max_length": 64}, adapter=True)


def outcome(run: Run) -> dict[str, Any]:
    """Train a run; return what each exact rule says of it, or why TRL refuses its options."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        model = Path(folder) / "model"
        MODELS[run.model](0).save_pretrained(model)
        tokenizer_that_marks_turns().save_pretrained(model)
        torch.manual_seed(0)
        own = {**FLOAT32, "output_dir": f"{folder}/out", "max_steps": STEPS, **run.options}
        try:
            trainer = trainer_of(run.trainer, model, own, adapter=lora() if run.adapter else None)
        except (ValueError, NotImplementedError) as error:
            return {"refused": f"{type(error).__name__}: {error}".splitlines()[0]}
        run_audit = audit(trainer)
        trainer.train()
    rules = {each.code: told(each) for each in run_audit.diagnosis.results() if is_exact(each.code)}
    return {"rules": rules, "unseen": run_audit.counts.unseen}


def is_exact(code: str) -> bool:
    """Return whether a rule has a closed form or an exact invariant."""
    return RULES[code].kind in EXACT


def told(result: RuleResult) -> dict[str, Any]:
    """Return a rule's verdict, with the claim of a finding or the missing inputs."""
    if result.verdict in FINDING_VERDICTS:
        finding = result.findings[0]
        claim = finding.claim
        what = {"what": claim.what, "got": claim.got, "expected": claim.expected, "where": finding.where}
        return {"verdict": result.verdict} | what
    return {"verdict": result.verdict} | (
        {"missing": result.missing} if result.verdict is Verdict.NOT_CHECKED else {}
    )


def losses_of(trainer: str) -> set[str]:
    """Return each ``loss_type`` that the installed TRL names."""
    config: Any = getattr(importlib.import_module("trl"), f"{trainer}Config")
    field = config.__dataclass_fields__["loss_type"].metadata
    named = re.split(r"(?:Possible|Supported) values are ", field["help"])[1]
    return set(field.get("choices", ())) | set(re.findall(r"(?<!=)'(\w+)'", named))


def measure() -> dict[str, Any]:
    """Train every run; return the versions and the outcomes."""
    for trainer, losses in LOSSES.items():
        if unknown := losses_of(trainer) - set(losses):
            raise SystemExit(f"{trainer}Config has losses without a run: {', '.join(sorted(unknown))}")
    outcomes = {}
    for run in runs():
        outcomes[str(run)] = outcome(run)
        print(run, summary(outcomes[str(run)]), file=sys.stderr, flush=True)
    return {
        "trl": importlib.metadata.version("trl"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "steps": STEPS,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "runs": outcomes,
    }


def summary(result: Mapping[str, Any]) -> str:
    """Return the findings of an outcome as a line."""
    if "refused" in result:
        return result["refused"]
    found = [f"{code} {each['verdict']}" for code, each in result["rules"].items() if "what" in each]
    return ", ".join(found) or "silent"


def measured(version: str, folder: Path) -> dict[str, Any]:
    """Install a release, measure it in a process of its own, and return what it writes."""
    target, file = folder / f"trl-{version}", folder / f"{version}.json"
    install = [Path(sys.executable).parent / "uv", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--target", target, f"trl=={version}"], check=True)
    path = os.pathsep.join([str(target), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "dev.measure.conformance", "--here", file]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True)
    result = json.loads(file.read_text("utf-8"))
    if result["trl"] != version:
        raise SystemExit(f"TRL {result['trl']} was measured in place of {version}")
    return result | {"released": RELEASES[version]}


def main() -> None:
    """Measure every release and print the page, or measure the installed one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="folder of the releases and of what is measured")
    parser.add_argument("--here", action="store_true", help="measure the installed TRL; PATH is a JSON file")
    args = parser.parse_args()
    if args.here:
        transformers.logging.set_verbosity_error()
        warnings.simplefilter("ignore")
        args.path.write_text(json.dumps(measure(), indent=1) + "\n", "utf-8")
        return
    args.path.mkdir(parents=True, exist_ok=True)
    print(page([measured(version, args.path) for version in RELEASES]), end="")


if __name__ == "__main__":
    main()
