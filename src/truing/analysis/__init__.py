"""Results of runs: evaluations, intervals, paired differences, comparisons."""
