"""``docs/conformance.md``: what the doctor says of healthy runs of several releases of TRL."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.doctor.rules import RULES
from truing.doctor.verdict import FINDING_VERDICTS, Verdict

Release = Mapping[str, Any]
"""What ``python -m dev.measure.conformance`` writes of one release."""

LOSS_RULES = {"GRPO": "MSK003", "RLOO": "MSK003", "SFT": "MSK007"}
"""The closed form of each trainer's declared loss."""

HEAD = """\
<!-- Written by `make conformance`; change dev/measure/conformance_page.py instead. -->
# TRL's releases, run by run

Which closed forms of the doctor hold on runs of TRL's unmodified trainers, by release. Each run trains a
random model for {steps} optimizer steps in float32 on a CPU, with the [audit](doctor.md#in-trl) beside it.
`make conformance` installs each release, trains the runs and writes this page. Measured {date}, beside
{versions}.
"""

LEGEND = """\
A cell is what the rules with a closed form, an exact invariant or a static requirement say of the run (kinds
M, E and C of [all rules](rules/README.md)).

- *holds (n)*: n rules judged the run, and none has a finding. Among them is that of the declared loss, which
  compares the gradient of each token: [MSK003](rules/MSK003.md), for SFT [MSK007](rules/MSK007.md).
- *not checked*: the rule of the declared loss did not judge, for the reason that follows; n others are clean.
- A rule in bold has a finding, which is [below](#what-was-found).
"""

FOUND = """\
**GPT-2's positions.** `GRPOTrainer` and `RLOOTrainer` pad prompts on the left, and give the model
`input_ids` and `attention_mask` without position ids (`_get_per_token_logps_and_entropies`, in all four
releases). GPT-2 in transformers then counts pads as positions, and `generate` does not: a shorter prompt of
a batch is scored at other positions than it was sampled at. SMP005 shows it, and OPT009 follows. Smallest
input: three tokens of a prompt and three of an answer; one pad on the left moves an answer's
log-probability by 0.97 nats (random weights, two layers), and by 1e-6 with position ids from the mask.
Rotary positions depend on differences alone: the same pad moves Llama's by 1e-6.
[trl#6800](https://github.com/huggingface/trl/issues/6800) (2026-08-19) reports it of Online DPO, XPO and
Nash-MD.

**1.15.0 on a CPU.** All three trainers compute log-probabilities by Triton kernels alone
(`trl/kernels/chunked_logprob.py`). Without Triton, the first loss raises `AttributeError: 'NoneType' object
has no attribute 'apply'`; the smallest input is one step of any of them. 1.16.0 has a second path in torch.
Here Triton 3.9.0's interpreter runs the kernels (`TRITON_INTERPRET=1`).

**The denominator of [trl#5619](https://github.com/huggingface/trl/issues/5619).** With
`steps_per_generation` other than `gradient_accumulation_steps`, `dapo`, `cispo` and `vespo` once divided by
the tokens of the whole generation. In these releases `num_items_in_batch` is scaled to the micro-batches of
an optimizer step; the runs of `dapo` and `cispo` hold.

**What has no closed form here.** `sapo` and `vespo`; `delta` within the clip; a KL beside sequence ratios.
Before 1.15, the model of an `SFTTrainer` returns no log-probabilities, so the gradient of its tokens is not
seen.
"""

NOT_COVERED = """\
## What the runs do not cover

- vLLM, and with it the corrections of `vllm_importance_sampling_mode` and the rules that compare with the
  sampler's log-probabilities. `python -m dev.measure.trl_vllm` has runs of TRL 1.16.
- Several processes, FSDP, DeepSpeed, and GPUs.
- Other precisions than float32. `python -m dev.measure.trl_false_alarms` counts false alarms of TRL 1.16 in
  five of them.
- Liger kernels, images, tools, `rollout_func`, quantized models, mixtures of experts, TRL's other trainers.
- Whether a run learns: the steps are computed as declared.
"""


def page(releases: Sequence[Release]) -> str:
    """Return the page of releases with the same runs, the oldest first."""
    first = releases[0]
    days = sorted({each["date"] for each in releases})
    packages = {tuple(each["versions"].items()) for each in releases}
    if len(packages) > 1 or len({tuple(each["runs"]) for each in releases}) > 1:
        raise SystemExit("the releases were measured with other packages, or other runs: measure all again")
    values = {
        "steps": first["steps"],
        "date": " to ".join(dict.fromkeys((days[0], days[-1]))),
        "versions": ", ".join(f"{name} {version}" for name, version in first["versions"].items()),
    }
    parts = [
        HEAD.format(**values),
        "\n".join(runs_table(releases)),
        LEGEND,
        "## What was found\n",
        "\n".join(findings(releases)),
        FOUND,
        "## Rules\n",
        "\n".join(rules_table(releases)),
        NOT_COVERED,
    ]
    return "\n".join(each.rstrip("\n") + "\n" for each in parts)


def runs_table(releases: Sequence[Release]) -> Iterator[str]:
    """Yield the lines of the table of runs by release."""
    yield from _head("trainer", "options", *(f"{each['trl']} ({each['released']})" for each in releases))
    for run in releases[0]["runs"]:
        trainer, _, options = run.partition(": ")
        yield _line(trainer, _as_code(options), *(cell(trainer, each["runs"][run]) for each in releases))


def _as_code(options: str) -> str:
    """Return options with each argument as code, and words as they are."""
    each = re.split(r", (?![^(]*\))", options)
    return ", ".join(f"`{option}`" if "=" in option else option for option in each)


def cell(trainer: str, outcome: Mapping[str, Any]) -> str:
    """Return what a run shows: an error, the rules with a finding, not checked, or how many rules hold."""
    if "refused" in outcome:
        return "TRL raises an error"
    rules, loss = outcome["rules"], LOSS_RULES[trainer]
    found = [f"**{code}** {each['verdict']}" for code, each in rules.items() if "what" in each]
    clean = sum(each["verdict"] == Verdict.CLEAN for each in rules.values())
    if outcome["unseen"]:
        return f"not checked: {outcome['unseen']} steps were not seen"
    if found:
        return f"{', '.join(found)} ({clean} hold)"
    if loss not in rules:
        return f"not checked: no closed form of these options ({clean})"
    if rules[loss]["verdict"] == Verdict.NOT_CHECKED:
        return f"not checked: lacks {rules[loss]['missing'][0]} ({clean})"
    return f"holds ({clean})"


def findings(releases: Sequence[Release]) -> Iterator[str]:
    """Yield an item for each run and rule with a finding: the releases, and what the newest shows."""
    seen: dict[tuple[str, str], list[Release]] = {}
    for release in releases:
        for run, outcome in release["runs"].items():
            for code, each in outcome.get("rules", {}).items():
                if each["verdict"] in FINDING_VERDICTS:
                    seen.setdefault((run, code), []).append(release)
    for (run, code), where in seen.items():
        claim = where[-1]["runs"][run]["rules"][code]
        named = ", ".join(each["trl"] for each in where)
        yield (
            f"- [{code}](rules/{code}.md) {claim['verdict']} of `{run}` in {named}: {claim['what']}."
            f" Got {claim['got']}, expected {claim['expected']} ({claim['where']})."
        )
    if not seen:
        yield "No rule has a finding."


def rules_table(releases: Sequence[Release]) -> Iterator[str]:
    """Yield the lines of the table of rules: in how many runs each of them judged."""
    names = list(dict.fromkeys(code for each in releases for code in _rules(each)))
    yield "The runs of each release that a rule judged, and the input that it lacks most often in others."
    yield ""
    yield from _head("rule", "what it finds", *(each["trl"] for each in releases), "else lacks")
    for code in sorted(names):
        counts = [
            sum(outcome["verdict"] != Verdict.NOT_CHECKED for outcome in _rules(each).get(code, ()))
            for each in releases
        ]
        outcomes = [outcome for each in releases for outcome in _rules(each).get(code, ())]
        lacks = [", ".join(each["missing"]) for each in outcomes if "missing" in each]
        most = max(sorted(set(lacks)), key=lacks.count, default="")
        yield _line(f"[{code}](rules/{code}.md)", RULES[code].title, *map(str, counts), most)


def _rules(release: Release) -> dict[str, list[Mapping[str, Any]]]:
    """Return the results of each rule over the runs of a release."""
    results: dict[str, list[Mapping[str, Any]]] = {}
    for outcome in release["runs"].values():
        for code, each in outcome.get("rules", {}).items():
            results.setdefault(code, []).append(each)
    return results


def _head(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield "|" + "---|" * len(names)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
