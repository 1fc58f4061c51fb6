"""docs/metrics.md, from the table in keys.py: ``python -m truing.docgen.metrics > docs/metrics.md``."""

from truing.metrics.definitions import METRICS
from truing.metrics.metric import Metric

HEAD = """\
# Metrics

Made by `python -m truing.docgen.metrics`; edit `src/truing/metrics/definitions.py` instead.

A metric that cannot be computed is left out of its step: never 0, never NaN. *Policy tokens* are those under
the policy term, *trained tokens* those under the policy or the supervised term; a token without the numbers
that a formula needs is left out of its mean.

| metric | unit | what it is | absent where |
|---|---|---|---|
"""


def page() -> str:
    """The page as Markdown."""
    return HEAD + "".join(map(_row, METRICS))


def table_row(*cells: str) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _row(metric: Metric) -> str:
    return table_row(f"`{metric.name}`", metric.unit or "–", metric.formula, metric.absent or "–")


if __name__ == "__main__":
    print(page(), end="")
