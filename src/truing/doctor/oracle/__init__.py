"""Second implementations, slow and plain, that share no line with the trainer's."""
