"""Models: loading them, scoring with them, adapting them, and naming their weights."""
