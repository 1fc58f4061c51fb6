"""A run whose every text was written by somebody who means harm."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from recorded import make_sample, make_table

from truing.doctor.live_doctor import finding_event
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.record import RunWriter
from truing.types.status import Status

MARKUP = (
    "<script>window.pwned=1</script><img src=x onerror=window.pwned=1><svg onload=window.pwned=1>"
    '"\'><iframe src="javascript:window.pwned=1"></iframe><a href="javascript:window.pwned=1">here</a>'
    '<a href="https://evil.example/x">b</a><b>bold</b><style>*{display:none}</style></script></textarea>'
    "%{y}%{customdata[0]}&lt;script&gt;&#60;img src=y onerror=window.pwned=1&#62;${window.pwned=1}{{7*7}}"
)
BYTES = "\x1b[31m\x1b]0;owned\x07\x1b]8;;https://evil.example\x07\x00\x08\x7f\u202eevil\u2066\ufeff\u200b"
EVIL = MARKUP + BYTES
SHORT = "<img src=x onerror=window.pwned=1>\u202e\x1b[2J"
LINK = "javascript:window.pwned=1"
LONG = 100_000
"""Tokens of one sample."""

MEGABYTE = 1_000_000


def write(run: Path, tokenizer: Path) -> Path:
    """The run: of two steps, the last with a sample of ``LONG`` tokens and one text of 1 MB."""
    with RunWriter(run) as writer:
        facts = {
            "name": EVIL,
            "tokenizer": "tokenizer",
            "created": EVIL,
            "model": {"name": EVIL, EVIL: EVIL},
            "versions": {EVIL: LINK},
            "machine": {"device": EVIL},
            "sampling_params": {EVIL: EVIL},
            "judged": {EVIL: EVIL},
            "recipe": {"name": EVIL, "stages": ["grpo"], "grpo": {"steps": 2}},
        }
        writer.write_run(json.loads(json.dumps(facts)))
        writer.write_recipe(EVIL)
        for step in range(2):
            rows = [_sample(f"s{i}/{SHORT}", i, LONG if (step, i) == (1, 0) else 40) for i in range(3)]
            record = make_table(
                step, rows, **{f"family_reward/{_safe(SHORT)}": 0.5, f"reward_part/{_safe(SHORT)}": 1.0}
            )
            writer.write_step(replace(record, loss_label=EVIL))
        name = rows[1].sample_id
        for code, claim in (("MSK003", EVIL), ("LEN001", LINK)):
            result = Finding(
                code,
                EVIL,
                "grpo",
                1,
                Claim(Verdict.PROVEN, claim, EVIL, EVIL, remedy=EVIL, start=3, end=6),
                name,
            )
            writer.write_event("finding", **finding_event(result))
        writer.write_event(EVIL, text=EVIL)
        writer.write_event("incident", what=EVIL, stage=EVIL, step=0, text=EVIL)
        writer.write_event("boundary", stage=EVIL, step=0, lines=[[EVIL, EVIL]])
        writer.write_event("eval", name=EVIL, estimate={"mean": 0.5, "low": 0.4, "high": 0.6, "tasks": 3})
        writer.write_event("stopped", error=EVIL, reason=EVIL)
    _tokenizer(run / "tokenizer", tokenizer)
    return run


def _safe(text: str) -> str:
    return text.replace("/", "|")


def _sample(name: str, seed: int, length: int):
    text = EVIL if seed else EVIL + "A" * MEGABYTE
    messages = (
        {"role": SHORT, "content": text},
        {"role": "assistant", "content": text},
        {"role": LINK, "content": [{"x": EVIL}]},
    )
    return replace(
        make_sample(name, length, seed=seed, reward=float(seed)),
        group_id=SHORT,
        task_id=SHORT,
        family=SHORT,
        rollout_id=SHORT,
        old_source="sampler",
        token_ids=torch.arange(length) % 300,
        prompt_hash=SHORT,
        text=text,
        error=text,
        status=Status.ERROR if seed == 2 else Status.DONE,
        reward_parts={SHORT: 1.0},
        messages=messages,
        outcome={SHORT: EVIL},
    )


def _tokenizer(out: Path, like: Path) -> None:
    """A tokenizer of which some tokens are markup, and one is 1 MB long."""
    table = json.loads((like / "tokenizer.json").read_text())
    for i, content in enumerate((MARKUP, "\x1b[31m", "\u202e", "B" * MEGABYTE, LINK, "<b>")):
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        table["added_tokens"].append({"id": 259 + i, "content": content, **flags})
    out.mkdir()
    (out / "tokenizer.json").write_text(json.dumps(table))
