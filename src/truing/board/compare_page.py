"""Two runs: what was declared otherwise, where they part, and what each came to."""

from dataclasses import asdict
from typing import Any

from truing.board.log import evaluations_at
from truing.board.opened import Opened
from truing.board.overview import line
from truing.board.run_page import spans
from truing.record.beside import beside
from truing.record.compare import OTHER_SEED, Delta, declared, first_parting

LOOKED_AT = 300
"""Updates that are compared token by token. `truing compare` looks at all."""


def told(first: Opened, second: Opened) -> dict[str, Any]:
    """What is known of two runs at once."""
    recipe, facts = declared(first.run, second.run)
    return {
        "runs": [
            line(each) | {"spans": spans(each), "evaluations_at": evaluations_at(each.run)}
            for each in (first, second)
        ],
        "recipe": [_delta(each) for each in recipe],
        "facts": [_delta(each) for each in facts],
        "numbers": sorted({*first.run.columns.numbers} & {*second.run.columns.numbers}),
    }


def parting(first: Opened, second: Opened) -> dict[str, Any]:
    """Where two runs part, token by token, and what each came to."""
    recipe, _ = declared(first.run, second.run)
    same, found = first_parting(first.run, second.run, LOOKED_AT)
    return {
        "same": same,
        "looked_at": LOOKED_AT,
        "note": OTHER_SEED if any(each.key == "seed" for each in recipe) else "",
        "parting": None if found is None else asdict(found) | {"update": found.step + 1},
        "beside": [asdict(each) for each in beside(first.run, second.run)],
    }


def _delta(each: Delta) -> dict[str, str]:
    return {"key": each.key, "first": repr(each.first), "second": repr(each.second)}
