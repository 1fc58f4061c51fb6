"""Sampling with vLLM: one or several servers, over HTTP."""
