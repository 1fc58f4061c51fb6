"""Tool calls fail: they are malformed, the schema refuses them, or the tool answers with an error.

Found: Less than half of the calls are answered without an error.
Excluded: Most are.
"""

from collections import Counter
from collections.abc import Iterator

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import check_recipe
from truing.doctor.causes.example import example_history, example_sample
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.types.message import Message

MOST = 0.5
"""Of the calls."""

FEWER = 0.5
"""Of the calls of the first steps: the policy stops calling."""

SHOWN = 160
"""Characters of an error."""

ERROR, MALFORMED = "Error: ", " is malformed: "
REFUSED = ("Error: wrong arguments for ", "Error: there is no tool ")
"""How replies to calls that fail begin, and what those to malformed calls have within; by `envs/tools.py`."""

TITLES = {
    "are malformed": "tool calls are malformed",
    "are refused by the schema": "tool calls are refused",
    "are answered with an error by the tool": "tools answer with an error",
}
"""By what becomes of a call."""


def judge(history: History) -> Answer | None:
    """Return the share of calls that are answered, and what becomes of the others."""
    valid = history.late("tools/valid_share")
    if valid != valid:
        return None  # no call has a reply
    because = f"{valid:.0%} of calls are answered without an error"
    if valid >= MOST:
        return Answer("ruled out", because)
    errors = [(kind, each) for each in _replies(history) if (kind := _kind(each))]
    kinds, texts = Counter(kind for kind, _ in errors), Counter(text for _, text in errors)
    if errors:
        parts = [f"{count} {kind}" for kind, count in kinds.most_common()]
        text, count = texts.most_common(1)[0]
        because += f"; of the last that fail {', '.join(parts)}; {count} times: {text[:SHOWN]!r}"
    calls = history.series("tools/calls_mean")
    if calls and calls[-1] < FEWER * calls[0]:
        because += f"; a rollout had {calls[0]:.2g} calls in the first step, and {calls[-1]:.2g} in the last:"
        because += " the policy stops calling"
    title = TITLES[kinds.most_common(1)[0][0]] if errors else ""
    return Answer("found", because, 1 - valid, check_recipe(history), title=title)


def _replies(history: History) -> Iterator[str]:
    """Yield the replies of tools in the last rollouts."""
    for each in rollouts_of(history):
        yield from (message["content"] for message in each.messages if message["role"] == "tool")


def _kind(reply: str) -> str:
    """Return what became of the call that a reply answers; "" if it has a result."""
    if not reply.startswith(ERROR):
        return ""
    if MALFORMED in reply.partition("\n")[0]:
        return "are malformed"
    refused = reply.startswith(REFUSED)
    return "are refused by the schema" if refused else "are answered with an error by the tool"


def _refused(reply: str, **metrics: float | list[float]) -> History:
    """Return a record in which most calls have one reply."""
    message: Message = {"role": "tool", "content": reply}
    rows = [example_sample(i, messages=(message,)) for i in range(32)]
    return example_history({"tools/valid_share": 0.2} | metrics, samples=rows)


CAUSE = Cause(
    title="tool calls fail",
    judge=judge,
    found=(
        lambda: example_history({"tools/valid_share": 0.2}),
        lambda: _refused("Error: 429"),
        lambda: _refused("Error: wrong arguments for look: 'key' is a required property"),
        lambda: _refused("Error: Call 1 is malformed: not JSON"),
    ),
    excluded=(lambda: example_history({"tools/valid_share": 0.9}),),
)
