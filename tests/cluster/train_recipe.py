"""Trains a recipe as a rank: ``python forked_ranks.py RANKS train_recipe.py RECIPE RUN``."""

import sys

import truing
from truing.config import load_recipe

if __name__ == "__main__":
    truing.train(load_recipe(sys.argv[1]), out=sys.argv[2], on_event=lambda kind, facts: None)
