"""Runs of other trainers, read from what they leave behind: logs of scalars, exports of trackers, dumps.

Each format has a file with a function from a path to a ``Log``. ``names.py`` says which of its numbers
are ours, ``steps.py`` makes steps of them, and every rule whose inputs are there looks at those. What a
log does not tell is absent, and what it tells in another sense is left out.
"""
