"""Which closed forms of the doctor hold on healthy runs of TRL, release by release.

    python -m dev.measure.conformance FOLDER

Installs each of ``RELEASES`` into the folder without its dependencies, in front of the torch and
transformers of this environment. A process per release trains each run of ``conformance_runs.py`` for some
steps with the audit beside it, and writes what every rule with a closed form says. Prints
``docs/conformance.md``, which ``make conformance`` writes. A run takes a second on a core.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from dev.measure.conformance_page import page
from dev.measure.conformance_runs import LOSSES, MODELS, Run, runs
from dev.measure.trl_runs import FLOAT32, lora, tokenizer_that_marks_turns, trainer_of
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

NEEDS_TRITON = ("1.15.0",)
"""Releases whose head is Triton kernels alone. Triton's interpreter runs them on a CPU."""

TRITON = "triton==3.9.0"

STEPS = 5

EXACT = ("E", "C", "M")
"""Kinds of rules whose verdict is no matter of chance."""

PACKAGES = ("torch", "transformers", "peft", "datasets", "accelerate")


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
    results = [each for each in run_audit.diagnosis.results() if RULES[each.code].kind in EXACT]
    return {"rules": {each.code: told(each) for each in results}, "unseen": run_audit.counts.unseen}


def told(result: RuleResult) -> dict[str, Any]:
    """Return a rule's verdict, with the claim of a finding or the missing inputs."""
    more: dict[str, Any] = {}
    if result.verdict in FINDING_VERDICTS:
        claim, where = result.findings[0].claim, result.findings[0].where
        more = {"what": claim.what, "got": claim.got, "expected": claim.expected, "where": where}
    elif result.verdict is Verdict.NOT_CHECKED:
        more = {"missing": result.missing}
    return {"verdict": result.verdict} | more


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
    packages = [f"trl=={version}", *([TRITON] if version in NEEDS_TRITON else [])]
    install = [Path(sys.executable).parent / "uv", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--python", sys.executable, "--target", target, *packages], check=True)
    own = {
        "PYTHONPATH": os.pathsep.join([str(target), os.environ.get("PYTHONPATH", "")]),
        "TRITON_INTERPRET": "1",
    }
    command = [sys.executable, "-m", "dev.measure.conformance", "--here", file]
    subprocess.run(command, env=os.environ | own, stdout=sys.stderr, check=True)
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
