"""Hypotheses, experiments, verdicts: what is left once exact checks have spoken is settled by paired runs."""
