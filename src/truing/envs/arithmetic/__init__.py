"""Short questions with one right answer, made by Truing itself."""
