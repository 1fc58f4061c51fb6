"""Commands that answer a question with runs."""
