"""Speed and memory on this machine: against a peer, in turns, and against what the machine can do."""
