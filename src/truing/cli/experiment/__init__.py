"""Commands that settle a question by runs."""
