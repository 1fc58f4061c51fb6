"""Runs of other trainers, from their files: logs of scalars, exports of trackers, dumps.

Each format has a file with a function from a path to a ``Log``. ``metric_names.py`` maps its numbers to
ours, ``steps.py`` makes steps of them, and every rule with all inputs checks those. A missing value is
absent, and a number with another meaning is left out.
"""
