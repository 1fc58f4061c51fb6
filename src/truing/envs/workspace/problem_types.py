"""The table of kinds: name → function, those with the fewest calls first."""

from collections.abc import Callable

from truing.envs.arithmetic.questions import Draws
from truing.envs.workspace import multi_call, single_call, tiny_problems
from truing.envs.workspace.problem import Problem

OFFICE_KINDS: dict[str, Callable[[Draws], Problem]] = {
    "message": single_call.message,
    "post": single_call.post,
    "note": single_call.note,
    "book": single_call.book,
    "mail": multi_call.mail,
    "move": multi_call.move,
    "cancel": multi_call.cancel,
    "figure": multi_call.figure,
    "invite": multi_call.invite,
    "delay": multi_call.delay,
    "report": multi_call.report,
}
"""For language models."""

TINY_KINDS: dict[str, Callable[[Draws], Problem]] = {
    "tiny-message": tiny_problems.message,
    "tiny-note": tiny_problems.note,
    "tiny-file": tiny_problems.file,
}
"""For the model `tiny`."""

KINDS = OFFICE_KINDS | TINY_KINDS
