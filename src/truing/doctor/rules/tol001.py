"""TOL001: A tool is called by a name that does not exist.

What: One name that no tool has makes a fifth of all calls or more.

Why it is silent: The world answers with an error, the attempt goes on, and the reward is low, as it is for
any bad attempt. The policy may do what its prompt told it to: where prompt and world name a tool
differently, it cannot do right.

How it is measured: The names in the calls of the record are compared with those of the tools that the world
has. Each unknown name is counted by itself, and the nearest known one is looked up.

Healthy look-alikes: A policy that is learning to call makes up names of many kinds: each is rare. A call
that could not be read has no name, and is not counted.

Fix: Make the names in the prompt from the tools themselves, at one place. Look for prefixes, dashes and
underscores, and for the name that the base model was trained to use.

References: docs/agents.md, https://github.com/aliasrobotics/cai/issues/405
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

SHARE = 0.2
"""Of all calls, by one name."""

ENOUGH = 5
"""Calls by that name."""


class Measured(NamedTuple):
    """Calls, and the unknown name that is called most."""

    calls: int
    unknown: int  # by any name that no tool has
    name: str
    times: int
    nearest: str  # tool by its name; empty where none is near
    row: int  # where it is called first


def measure(step: Step) -> Measured:
    """Count the names of calls, each attempt once however many samples it has."""
    known = step.setup.tools or ()
    called, where = Counter[str](), dict[str, int]()
    for index in {row.rollout_id: i for i, row in reversed(list(enumerate(step.rows)))}.values():
        for message in step.rows[index].messages:
            for name in _names(message):
                called[name] += 1
                where[name] = min(index, where.get(name, index))
    unknown = Counter({name: times for name, times in called.items() if name not in known})
    name, times = unknown.most_common(1)[0] if unknown else ("", 0)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return Measured(called.total(), unknown.total(), name, times, near[0] if near else "", where.get(name, 0))


def _names(message: Mapping[str, Any]) -> Iterator[str]:
    """The names that a message of the policy calls."""
    for call in message.get("tool_calls") or ():
        name = call.get("function", call).get("name")
        if isinstance(name, str) and name:
            yield name


def judge(found: Measured) -> Iterator[Claim]:
    """A name that comes again and again is no slip."""
    if found.times >= ENOUGH and found.times >= SHARE * found.calls:
        yield Claim(
            Verdict.SUSPECT,
            f"{found.times} of {found.calls} calls are to {found.name!r}, and there is no such tool",
            got=f"{found.unknown} calls by names that no tool has",
            expected=f"the nearest name is {found.nearest!r}" if found.nearest else "a name that a tool has",
            row=found.row,
            specificity=2,
        )


def _calling(*names: str) -> Step:
    rows = {
        index: {"messages": ({"role": "assistant", "tool_calls": [{"function": {"name": name}}]},)}
        for index, name in enumerate(names)
    }
    return changed_step(example_step(), rows=rows, setup={"tools": ("read_file", "send_message")})


def example() -> Step:
    """The prompt tells of another name than the world has."""
    return _calling(*("readFile",) * 6, "send_message", "read_file")


def made_up() -> Step:
    """A policy that tries all kinds of names."""
    return _calling("read", "file", "open", "readfile", "cat", "send_message", "read_file", "read_file")


RULE = Rule(
    code="TOL001",
    name="unknown-tool",
    kind="S",
    needs=("row.messages", "setup.tools"),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.numbers.get("tools/calls_mean", 1.0) > 0,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(made_up,),
)
