"""Ray places and starts the ranks and vLLM servers of a run, on one machine or many.

Ray starts the same processes as ``torchrun``'s launcher (``distributed/launch.py``), and nothing else.
"""
