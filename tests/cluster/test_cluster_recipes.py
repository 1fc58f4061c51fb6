"""The recipes of `recipes/cluster/`, and the Slurm script and KubeRay manifest that start Ray for them."""

import os
import shlex
import stat
import subprocess

import pytest
import yaml
from folders import ROOT

from truing.cluster.bundles import bundles_of, check_fits, total
from truing.config import load_recipe
from truing.envs import env_keys

FOLDER = ROOT / "recipes" / "cluster"
MACHINE = {"CPU": 64, "GPU": 8}
RESERVED = {
    "qwen3-8b.toml": (1, [{"CPU": 1, "GPU": 1}] * 8),
    "qwen3-32b.toml": (8, [{"CPU": 5, "GPU": 1}] * 32 + [{"CPU": 1, "GPU": 1}] * 32),
}
"""Machines, and the bundles on them as docs/scale.md computes them."""


def test_every_recipe_is_checked():
    assert {path.name for path in FOLDER.glob("*.toml")} == set(RESERVED)


@pytest.mark.parametrize("name", RESERVED)
def test_a_recipe_resolves_and_fills_its_machines(name):
    recipe = load_recipe(FOLDER / name)
    assert f"{recipe.name}.toml" == f"cluster-{name}"
    assert env_keys(recipe.env["name"], {key: value for key, value in recipe.env.items() if key != "name"})
    machines, bundles = RESERVED[name]
    assert bundles_of(recipe, on_gpu=True) == bundles
    assert total(bundles)["GPU"] == machines * MACHINE["GPU"]
    check_fits(bundles, [MACHINE] * machines)


@pytest.mark.parametrize("name", RESERVED)
def test_a_recipe_says_that_it_was_never_run(name):
    assert "Not yet run on a GPU by us" in (FOLDER / name).read_text()


def test_the_manifest_starts_machines_that_hold_its_recipe():
    job = yaml.safe_load((FOLDER / "kuberay.yaml").read_text())
    assert job["kind"] == "RayJob"
    _, _, command = shlex.split(job["spec"]["entrypoint"])
    words = command.split()
    assert words[words.index("truing") :][:2] == ["truing", "train"]
    assert words[-2:] == ["--ray", "auto"]
    recipe = load_recipe(FOLDER / words[words.index("train") + 1])
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]
    node = {"CPU": float(limits["cpu"]), "GPU": float(limits["nvidia.com/gpu"])}
    check_fits(bundles_of(recipe, on_gpu=True), [node] * group["replicas"])
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert "/shared" in mounts
    names = {each["name"] for each in container["env"]}
    assert "RAY_USAGE_STATS_ENABLED" in names


@pytest.fixture
def cluster(tmp_path):
    """Stand-ins for the commands of a Slurm job of three machines: each notes how it was called."""
    commands = {
        "scontrol": "printf 'a\\nb\\nc\\n'",
        "srun": "while [[ $1 == -* ]]; do [[ $1 == --nodelist=* ]] && node=${1#*=}; shift; done\n"
        'if [ "$1" = hostname ]; then echo "10.0.0.1 fe80::1"; exit; fi\n'
        'echo "on $node: $*" >> "$CALLS"',
        "ray": 'echo "ray $*" >> "$CALLS"',
        "python": 'echo "python $2 $3" >> "$CALLS"',
        "truing": 'sleep 0.3; echo "truing $*" >> "$CALLS"; exit "${TRAINED:-0}"',
    }
    for name, text in commands.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def run(out, **env):
        done = subprocess.run(
            ["bash", FOLDER / "slurm.sh", "recipe.toml", out],
            env={
                **os.environ,
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "CALLS": str(tmp_path / "calls"),
                "SLURM_JOB_NODELIST": "[a-c]",
                "SLURM_CPUS_PER_TASK": "64",
                "SLURM_GPUS_ON_NODE": "8",
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, (tmp_path / "calls").read_text().splitlines()

    return run


def test_the_slurm_script_starts_ray_on_each_machine_then_trains(cluster, tmp_path):
    code, calls = cluster(tmp_path / "run")
    assert code == 0
    starts = {call for call in calls if call.startswith("on ")}
    resources = "--num-cpus=64 --num-gpus=8 --block"
    head = "--head --node-ip-address=10.0.0.1 --port=6379 --include-dashboard=false"
    assert starts == {
        f"on a: ray start {head} {resources}",
        f"on b: ray start --address=10.0.0.1:6379 {resources}",
        f"on c: ray start --address=10.0.0.1:6379 {resources}",
    }
    assert "python 10.0.0.1:6379 3" in calls
    assert calls[-1] == f"truing train recipe.toml --out {tmp_path / 'run'} --ray 10.0.0.1:6379"


def test_the_slurm_script_resumes_a_run_and_ends_with_its_exit_code(cluster, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    code, calls = cluster(tmp_path / "run", TRAINED="137")
    assert code == 137
    assert calls[-1] == f"truing train recipe.toml --out {tmp_path / 'run'} --resume --ray 10.0.0.1:6379"
