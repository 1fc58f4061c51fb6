"""TOL001: The policy calls a tool that does not exist.

What: One unknown tool name makes at least a fifth of all calls.

Why it is silent: The environment returns an error, the rollout goes on, and the reward is low, as for any
bad rollout. The policy may follow its prompt: if prompt and environment use different tool names, it cannot
be right.

How it is measured: The rule compares the names in the recorded calls with those of the environment's tools.
It counts each unknown name by itself, and looks up the nearest known one.

Healthy look-alikes: A policy that is learning to call invents names of many kinds: each is rare. A call
that could not be parsed has no name, and does not count.

Fix: Generate the names in the prompt from the tools themselves, in one place. Look for prefixes, dashes and
underscores, and for the name that the base model was trained on.

References: docs/agents.md, https://github.com/aliasrobotics/cai/issues/405
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

SHARE = 0.2
"""Of all calls, by one name."""

ENOUGH = 5
"""Calls by that name."""


def _names(message: Mapping[str, Any]) -> Iterator[str]:
    """Return the tool names in a message of the policy."""
    for call in message.get("tool_calls") or ():
        name = call.get("function", call).get("name")
        if isinstance(name, str) and name:
            yield name


def judge(step: Step) -> Iterator[Claim]:
    """Claim a frequent unknown name; each rollout counts once however many samples it has."""
    known = step.setup.tools or ()
    called, where = Counter[str](), dict[str, int]()
    for index in {row.rollout_id: i for i, row in reversed(list(enumerate(step.samples)))}.values():
        for message in step.samples[index].messages:
            for name in _names(message):
                called[name] += 1
                where[name] = min(index, where.get(name, index))
    unknown = Counter({name: times for name, times in called.items() if name not in known})
    name, times = unknown.most_common(1)[0] if unknown else ("", 0)
    if times >= ENOUGH and times >= SHARE * called.total():
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        yield Claim(
            Verdict.SUSPECT,
            f"{times} of {called.total()} calls are to {name!r}, which is not a tool",
            got=f"{unknown.total()} calls by unknown names",
            expected=f"the nearest name is {near[0]!r}" if near else "the name of a tool",
            row=where[name],
            specificity=2,
        )


def _calling(*names: str) -> Step:
    rows = {
        index: {"messages": ({"role": "assistant", "tool_calls": [{"function": {"name": name}}]},)}
        for index, name in enumerate(names)
    }
    return changed_step(example_step(), samples=rows, setup={"tools": ("read_file", "send_message")})


def example() -> Step:
    """Prompt and environment use different tool names."""
    return _calling(*("readFile",) * 6, "send_message", "read_file")


def different_names() -> Step:
    """A policy that tries many different names."""
    return _calling("read", "file", "open", "readfile", "cat", "send_message", "read_file", "read_file")


RULE = Rule(
    code="TOL001",
    name="unknown-tool",
    kind="S",
    needs=("sample.messages", "setup.tools"),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.metrics.get("tools/calls_mean", 1.0) > 0,
    judge=judge,
    example=example,
    lookalikes=(different_names,),
)
