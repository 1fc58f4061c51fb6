"""Second implementations, slow and simple, without any code of the trainer."""
