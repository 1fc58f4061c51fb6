"""Second implementations, slow and simple, of no code of the trainer: its faults would compare equal."""
