"""The table of kinds: name → maker, those with the fewest calls first."""

from collections.abc import Callable

from truing.envs.kinds import Draws
from truing.envs.workspace import chained, single, tiny
from truing.envs.workspace.problem import Problem

OFFICE_KINDS: dict[str, Callable[[Draws], Problem]] = {
    "message": single.message,
    "post": single.post,
    "note": single.note,
    "book": single.book,
    "mail": chained.mail,
    "move": chained.move,
    "cancel": chained.cancel,
    "figure": chained.figure,
    "invite": chained.invite,
    "delay": chained.delay,
    "report": chained.report,
}
"""For language models."""

TINY_KINDS: dict[str, Callable[[Draws], Problem]] = {
    "tiny-message": tiny.message,
    "tiny-note": tiny.note,
    "tiny-file": tiny.file,
}
"""For the model `tiny`."""

KINDS = OFFICE_KINDS | TINY_KINDS
