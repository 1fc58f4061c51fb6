"""``python -m truing``: the command line."""

from truing.cli import main

main()
