"""Probes: small problems with a known answer, run through the trainer's own code."""
