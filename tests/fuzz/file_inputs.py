"""Files: recipes, overrides, data rows, model folders, logs of other trainers."""

import functools
import json
import shutil
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path

import tomli_w
from examples import example, tiny_model
from folders import ROOT, WRITTEN
from mutate import change_bytes, change_file, change_json, change_lines, change_value
from test_foreign_trackers import history, wandb_log

from truing.config import load_recipe
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.envs import checked_tasks, make_env
from truing.errors import TruingError
from truing.models.load import load
from truing.models.read_model import shapes_of_model


def make_recipe(rng, folder):
    data = example(rng, "recipes/**/*.toml").read_bytes()
    if rng.random() < 0.6:
        try:
            data = tomli_w.dumps(change_value(rng, tomllib.loads(data.decode()))).encode()
        except (TypeError, AttributeError, ValueError, RecursionError):  # what TOML cannot hold
            data = change_bytes(rng, data)
    else:
        data = rng.choice([change_bytes, change_lines])(rng, data)
    (folder / "recipe.toml").write_bytes(data)


def read_recipe(folder):

    load_recipe(folder / "recipe.toml")


OVERRIDES = [
    *(
        "grpo.learning_rate=1e-3",
        'env.kinds=["max"]',
        "name=x",
        'lora={"rank"=8}',
        "eval.tasks=8",
        "model.name=tiny",
    ),
    *(
        "guard.window=5",
        "episode.timeout=3",
        "sampling.temperature=0.7",
        'stages=["sft"]',
        "optimizer.betas=[0.9,0.95]",
    ),
]


def make_overrides(rng, folder):
    chosen = [rng.choice(OVERRIDES) for _ in range(rng.randint(1, 3))]
    changed = change_bytes(rng, "\n".join(chosen).encode())
    (folder / "overrides.txt").write_bytes(changed)


def read_overrides(folder):

    text = (folder / "overrides.txt").read_bytes().decode(errors="surrogateescape")  # as sys.argv
    load_recipe("tiny", text.split("\n"))


ROWS = ("gsm8k/train.jsonl", "musique/*.jsonl", "glaive_toolcall/*.jsonl", "bfcl/*.jsonl", "halueval/*.jsonl")


def make_rows(rng, folder):
    source = (
        ROOT / "recipes/own-data.jsonl" if rng.random() < 0.3 else example(rng, rng.choice(ROWS), WRITTEN)
    )
    lines = source.read_bytes().splitlines(keepends=True)[:12]
    (folder / "rows.jsonl").write_bytes(b"".join(lines))
    change_file(rng, folder / "rows.jsonl")
    if rng.random() < 0.2:
        (folder / "rows.csv").write_bytes(change_bytes(rng, b"prompt,answer\nwhat,1\nwho,2\nwhy,3\nhow,4\n"))


def read_rows(folder):

    path = folder / "rows.csv" if (folder / "rows.csv").exists() else folder / "rows.jsonl"
    exact = {"right": {"kind": "exact"}}
    first = path.read_bytes()[:3000]
    columns = {}
    for key, names in {
        "prompt_column": ("question", "instruction"),
        "answer_column": ("gold", "output"),
    }.items():
        columns.update((key, name) for name in names if f'"{name}"'.encode() in first)
    env = make_env("dataset", {"data": str(path), "rewards": exact, **columns})
    checked_tasks(env)


def make_model(rng, folder):
    shutil.copytree(tiny_model().path, folder / "model")
    path = rng.choice([path for path in sorted((folder / "model").iterdir()) if path.is_file()])
    if path.suffix == ".safetensors" and rng.random() < 0.7:  # its header
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = change_json(rng, data[8 : 8 + length])
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    else:
        change_file(rng, path)


def read_model(folder):
    with suppress(TruingError):
        shapes_of_model(folder / "model")
    load(str(folder / "model"), device="cpu")


@functools.cache
def _logs():
    """A log of each kind, small."""
    folder = Path(tempfile.mkdtemp())

    lines = _first(WRITTEN / "training_logs/logs/degraded.jsonl", 20)
    (folder / "a.jsonl").write_bytes(lines)
    records = [json.loads(line) for line in lines.splitlines()]
    names = [name for name in records[0] if isinstance(records[0][name], int | float)]
    rows = [",".join(names), *(",".join(str(each.get(name, "")) for name in names) for each in records)]
    (folder / "a.csv").write_text("\n".join(rows))
    (folder / "console.log").write_text("\n".join(f"{each}" for each in records))
    (folder / "verl.log").write_text(
        "\n".join(f"step:{i} - actor/kl:0.1 - critic/rewards/mean:0.5" for i in range(9))
    )
    wandb_log(folder / "run-a.wandb", [history(i) for i in range(9)])
    state = {
        "log_history": [{"step": i, "reward": 0.5, "loss": 0.1, "kl": 0.2} for i in range(9)],
        "global_step": 9,
    }
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def _first(path, count):
    return b"".join(path.read_bytes().splitlines(keepends=True)[:count])


def make_log(rng, folder):
    source = rng.choice(sorted(_logs().iterdir()))
    shutil.copy(source, folder)
    change_file(rng, folder / source.name)


def read_log(folder):

    for path in folder.iterdir():
        diagnose_log(path)
