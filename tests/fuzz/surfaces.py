"""What comes from outside, by surface: how an input is made of a valid example, and what reads it.

``make(rng, folder)`` writes an input to a folder, ``read(folder)`` reads it as Truing does. Only a
``TruingError``, or what the surface documents, may come out of ``read``.
"""

from typing import NamedTuple

import file_inputs
import run_inputs
import text_inputs


class Surface(NamedTuple):
    """A kind of input."""

    make: object
    read: object


SURFACES = {
    "recipes": Surface(file_inputs.make_recipe, file_inputs.read_recipe),
    "overrides": Surface(file_inputs.make_overrides, file_inputs.read_overrides),
    "rows": Surface(file_inputs.make_rows, file_inputs.read_rows),
    "templates": Surface(text_inputs.make_template, text_inputs.read_template),
    "calls": Surface(text_inputs.make_call, text_inputs.read_call),
    "models": Surface(file_inputs.make_model, file_inputs.read_model),
    "runs": Surface(run_inputs.make_run, run_inputs.read_run),
    "requests": Surface(run_inputs.make_request, run_inputs.read_request),
    "logs": Surface(file_inputs.make_log, file_inputs.read_log),
    "judges": Surface(text_inputs.make_judge, text_inputs.read_judge),
    "engines": Surface(text_inputs.make_engine, text_inputs.read_engine),
    "schemas": Surface(text_inputs.make_mcp, text_inputs.read_mcp),
}
