"""Sampling engines: ids and sampling parameters in; ids and log-probabilities out."""
