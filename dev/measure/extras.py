"""Install each extra alone, in an environment of its own, and import what needs it.

    .venv/bin/python -m dev.measure.extras                              # the newest versions
    .venv/bin/python -m dev.measure.extras --resolution lowest-direct   # the oldest allowed
    .venv/bin/python -m dev.measure.extras mcp ray                      # these extras only

Prints a line per extra, and the error of one that fails; exit code 1 if one does.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

USES = {
    "hub": "import truing.envs.data.rows; from datasets import load_dataset",
    "tasks": "import truing.envs.reasoning_gym, reasoning_gym.factory",
    "search": "import bm25s",
    "mcp": "import truing.envs.adapters.mcp, truing.envs.adapters.mcp_session, mcp.client.stdio",
    "verifiers": "import truing.envs.adapters.verifiers, verifiers.v1.utils.loaders, mcp.server.mcpserver",
    "openenv": "import truing.envs.adapters.openenv, openenv.core",
    "grammar": "import truing.chat.constrained.decoding, llguidance.hf",
    "agentdojo": "import agentdojo",
    "ray": "import truing.cluster.launch, truing.cluster.rank_actor, truing.cluster.engine_actor",
    "quantization": "import truing.models.load, bitsandbytes",
    "trackers": "import truing.trackers.backends, wandb, trackio, mlflow, sqlalchemy, alembic\n"
    "from torch.utils.tensorboard import SummaryWriter\n"
    "from wandb.proto.wandb_internal_pb2 import Record",
    "bench": "import truing.integrations.trl",
    "docs": "import dev.pages.notebooks, mkdocs_jupyter, material, mkdocstrings_handlers, ipykernel",
}
"""Per extra, the code that needs it."""


def main() -> None:
    """Check the extras named on the command line, by default all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*", help="by default all")
    parser.add_argument("--resolution", default="highest", choices=("highest", "lowest-direct"))
    parser.add_argument("--uv", default=str(Path(sys.executable).with_name("uv")), help="the path of uv")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if undeclared := USES.keys() ^ (project["optional-dependencies"].keys() - {"dev"}):
        sys.exit(f"USES and pyproject.toml differ in {sorted(undeclared)}")
    if unknown := set(options.extras) - USES.keys():
        sys.exit(f"no such extra: {sorted(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        build = [options.uv, "build", "-q", "--wheel", "--python", sys.executable, "--out-dir", folder, ROOT]
        subprocess.run(build, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        results = [
            extra_works(f"{wheel}[{extra}]", USES[extra], options.uv, options.resolution)
            for extra in options.extras or USES
        ]
    sys.exit(0 if all(results) else 1)


def extra_works(package: str, code: str, uv: str, resolution: str) -> bool:
    """Return whether an environment with a wheel and its extra runs code; print what happened."""
    start, name = time.monotonic(), package.rpartition("[")[2].rstrip("]")
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/env/bin/python"
        choice = ["--resolution", resolution, "--constraints", str(ROOT / "constraints.txt")]
        commands = [
            [uv, "venv", "-q", "--python", sys.executable, f"{folder}/env"],
            [uv, "pip", "install", "-q", "--python", python, *choice, package],
            [python, "-c", code],
        ]
        for command in commands:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(f"{name}: {' '.join(command[:3])} fails\n{done.stderr}", flush=True)
                return False
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    main()
