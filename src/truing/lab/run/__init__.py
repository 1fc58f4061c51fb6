"""Runs of a lab: design, plan, processes."""
