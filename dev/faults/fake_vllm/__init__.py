"""A small server that answers as vLLM 0.32 does, on a transformers model: for tests and planted faults."""
