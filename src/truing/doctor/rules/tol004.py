"""TOL004: A program's request was answered otherwise than it asked or the recipe declares.

What: The policy read other messages or tools than the program sent, an option of sampling was ignored, a call
beyond `env.max_calls` was answered, or a conversation is trained that `env.train` leaves out, or the reverse.

Why it is silent: The policy answers what it reads, and the reward judges what the program needed. The answers
look like those of a policy that does not listen.

How it is measured: The endpoint keeps each request as it came. Its messages, compared as parsed, and its
tools must be those of the conversation that answers it, its options what the recipe declares or overrides,
the number of calls within the limit, and the conversation trained if the rule of the recipe says so.

Healthy look-alikes: A client that gives the policy's messages back in another form. Options that the recipe
overrides. Requests that are refused. An answer that no client got.

Fix: Look at how requests become conversations: which messages, tools and options are taken from where.

References: docs/programs.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

WHAT = {
    "messages": "the policy read other messages than programs sent",
    "tools": "the policy saw other tools than programs sent",
    "options": "options of sampling were ignored that the recipe neither declares nor overrides",
    "beyond": "calls beyond env.max_calls were answered",
    "flags": "conversations are trained, or left out, against env.train",
}
"""What is wrong, by the count of the fact."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference: a conversation follows from the requests."""
    fact = step.facts["program_requests"]
    found = {name: fact[name] for name in WHAT if fact[name]}
    if found:
        yield Claim(
            Verdict.PROVEN,
            "; ".join(f"{WHAT[name]} ({count})" for name, count in found.items()),
            got=f"first: call {fact.get('call')} of {fact.get('rollout')}",
            expected=f"each of {fact['requests']} requests answered as it came and as the recipe declares",
            specificity=4.8,
        )


def _compared(**counts: object) -> Step:
    fact = dict.fromkeys(WHAT, 0) | {"requests": 12} | counts
    return changed_step(example_step(), facts={"program_requests": fact})


def example() -> Step:
    """The policy reads another message than its program sent."""
    return _compared(messages=1, rollout="0/grpo/0/0/1", call=2)


def as_sent() -> Step:
    """Every request is answered as it came."""
    return _compared()


RULE = Rule(
    code="TOL004",
    name="request-not-as-sent",
    kind="E",
    needs=("facts.program_requests",),
    taints=("policy", "sft"),
    applies=lambda step: "program_requests" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(as_sent,),
)
