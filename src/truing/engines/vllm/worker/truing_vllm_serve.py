"""Run vLLM's server as a child that ends with its parent: ``python -m truing_vllm_serve ARGUMENTS``.

A trainer that is killed leaves no server behind.
"""

import runpy
from pathlib import Path

END_WITH_PARENT = Path(__file__).parents[3] / "utils" / "end_with_parent.py"
"""vLLM's environment has no package ``truing``."""

STOP_SECONDS = 20.0
"""Seconds that the server may take to stop."""

if __name__ == "__main__":
    runpy.run_path(str(END_WITH_PARENT))["end_with_parent"](STOP_SECONDS)
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
