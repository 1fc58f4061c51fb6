"""Speed and memory on this machine: against other trainers, in turns, and against the machine's limits."""
