"""`python -m dev.measure.prove_depths [MODEL]`: which faults of a sync `truing prove` tells, by depth."""
