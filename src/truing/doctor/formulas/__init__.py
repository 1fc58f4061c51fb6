"""Formulas that rows show: how advantages follow from rewards, and token gradients from advantages."""
