"""The in-process engine: rows over a prefix tree or padded rows, with or without CUDA graphs."""
