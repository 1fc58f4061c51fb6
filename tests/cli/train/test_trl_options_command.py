"""`truing train` with the option names of TRL."""

import json

import pytest
from command import truing as command
from recorded import samples_of

from truing.config import load_recipe
from truing.record import RunReader

SMALL = (
    "model.name=tiny",
    "model.device=cpu",
    "eval.tasks=2",
    "eval.base=false",
    "sft.steps=1",
    "sft.batch_size=2",
    "sampling.max_new_tokens=4",
)


@pytest.fixture
def rows(tmp_path):
    """A file of questions in the format of MuSiQue."""

    def row(i):
        text = f"Born in City {i}. " * (1 + 10 * (i % 2))
        return {
            "id": f"2hop__{i}",
            "question": f"Where was person {i} born?",
            "answer": f"City {i}",
            "answer_aliases": [],
            "answerable": True,
            "paragraphs": [{"idx": 0, "title": "Person", "paragraph_text": text, "is_supporting": True}],
        }

    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(24)))
    return f"{path}[:20]"


def test_the_command_of_the_field_report(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--datasets", rows, "--batch-size", 8, "--num-generations", 4, "--max-steps", 2)
    more = ("--logging-steps", 1, "--scale-rewards", "false", "--kl-beta", 0, "--no-peft")
    run = tmp_path / "outputs" / "debug"
    outcome = command(
        *("train", "musique", *SMALL, *words, *more, "--max-prompt-length", 200),
        *("--output-dir", run, "--json"),
    )
    assert outcome.code == 0, outcome.err
    (line,) = outcome.out.splitlines()
    assert json.loads(line)["run"] == str(run)
    for note in (
        "note: --batch-size 8 counts rollouts: 2 prompts of 4 per step; so few detect only large changes",
        "note: --batch-size, --num-generations, --max-steps, --scale-rewards: for stage grpo alone; sft as",
        "note: --no-peft: sft.learning_rate = 0.0003, grpo.learning_rate = 0.0002 were chosen for an adapter",
        "training prompts are truncated to 200 tokens: user messages lost ",
    ):
        assert note in outcome.err
    saved = load_recipe(run / "recipe.toml")
    assert saved.env["data"] == rows
    assert (saved.lora, saved.kl.coef, saved.grpo.advantage_scale) == (False, 0.0, "none")
    assert saved.episode.max_prompt_tokens == 200
    steps = RunReader(run).steps()
    assert [(step.stage, step.step) for step in steps] == [("sft", 0), ("grpo", 0), ("grpo", 1)]
    groups = {row.group_id for row in samples_of(RunReader(run).find_table("grpo", 0))}
    assert (len(groups), len(RunReader(run).find_table("grpo", 0).samples)) == (2, 8)


@pytest.mark.integration
def test_several_data_sets_are_pooled(rows, tmp_path):
    folder = rows.removesuffix("rows.jsonl[:20]")
    out = ("--out", tmp_path / "run", 'stages=["sft"]', "env.eval_share=0.5")
    outcome = command(
        *("train", "musique", *SMALL, "--datasets", f"{folder}rows.jsonl[:9];{folder}rows.jsonl[9:]", *out)
    )
    assert outcome.code == 0, outcome.err
    assert load_recipe(tmp_path / "run" / "recipe.toml").env["data"] == [
        f"{folder}rows.jsonl[:9]",
        f"{folder}rows.jsonl[9:]",
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tiny", "--datasets", "rows.jsonl"), "unknown recipe key 'env.data'"),
        (("musique", "--logging-steps", 10), "there is no other logging interval"),
        (("musique", "--batch-size", 9), "--batch-size 9 in groups of 8"),
        (("tiny", "--scale-rewards", "std"), "true, false, group, batch, none"),
        (("tiny", "--kl-beta", "-1"), "recipe key 'kl.coef' has an invalid value"),
        (("tiny", "--learning-rate", "0"), "recipe key 'grpo.learning_rate' has an invalid value"),
        (("musiqe",), "did you mean the built-in recipe musique?"),
    ],
)
def test_what_has_no_place_is_an_error_before_anything_is_loaded(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = command("train", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err
    assert not list(tmp_path.iterdir())


def test_check_knows_recipes_by_name_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = command("check", "tiny", "env.train=6", "env.eval=4", "eval.tasks=4", "--static")
    assert outcome.code == 0
    (tmp_path / "tiny").mkdir()
    assert command("check", "tiny", "--static").code == 2  # a folder of that name wins, and is no log


@pytest.mark.integration
def test_eval_knows_recipes_by_name_and_a_run_of_that_name_wins(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("eval", "tiny", "eval.tasks=2", "env.train=4", "env.eval=4", "--json")
    assert json.loads(command(*words).out)["eval"]["tiny"]["tasks"] == 2
    finished.run.rename(tmp_path / "tiny")
    assert json.loads(command("eval", "tiny", "--json").out)["eval"]["tiny"]["tasks"] == 8
