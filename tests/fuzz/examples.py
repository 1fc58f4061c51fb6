"""Valid examples that inputs are made of."""

import functools

from folders import ROOT

from truing.models.load import load


def example(rng, pattern, under=ROOT):
    return rng.choice(sorted(under.glob(pattern)))


@functools.cache
def tiny_model():

    return load("tiny", device="cpu")
