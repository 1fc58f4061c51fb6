"""Fault injection: known bugs, planted one by one in real runs, that the doctor must find and name."""
