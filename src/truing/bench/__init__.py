"""Speed and memory against a peer: both sides in one run, each side in processes of its own, taking turns."""
