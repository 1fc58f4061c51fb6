"""User errors, each run from the command line: one clear error, exit code 2, no recorded data is lost."""

import contextlib
import json
import math
import re
import resource

import pytest
from command import truing as command
from recorded import samples_of

from truing.config import resolve, to_toml
from truing.envs.arithmetic import env
from truing.models import tiny
from truing.record import RunReader


@pytest.fixture
def train(mini, tmp_path):
    """Train the mini recipe, changed, into ``run``; more words follow."""

    def run(*words, **changes):
        path = tmp_path / "recipe.toml"
        path.write_text(to_toml(resolve(mini(**changes))))
        return command("train", path, "--out", tmp_path / "run", "--json", *words)

    return run


@pytest.fixture
def model(tmp_path):
    """A model folder that a test may take things from."""
    tiny.build(tmp_path / "model")
    return tmp_path / "model"


def refused(outcome, *said, traceback=False):
    """One error that says these things, and what to do; a traceback only where the user's own code failed."""
    assert outcome.code == 2
    assert outcome.out == ""
    _, message = re.split(r"^error: ", outcome.err, flags=re.MULTILINE)
    assert "expected: " in message or "remedy: " in message
    for part in said:
        assert part in message
    assert ("Traceback" in outcome.err) is traceback
    return True


@contextlib.contextmanager
def disk_full_at(size):
    """No file may grow beyond ``size`` bytes: to a program this is what a full disk is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grpo.group_sise=4"], ["unknown recipe key 'grpo.group_sise'", "did you mean grpo.group_size?"]),
        (["env.kindz=3"], ["unknown recipe key 'env.kindz'", "kinds"]),
        (["env.name=arithmetik"], ["unknown environment 'arithmetik'", "did you mean 'arithmetic'?"]),
        (['env.kinds=["maxx"]'], ["unknown kind 'maxx'", "did you mean 'max'?"]),
        (["grpo.steps=none"], ["'grpo.steps'", "got: none", "expected: "]),
        (["sampling.top_p=2"], ["'sampling.top_p'", "got: 2"]),
        (["sampling.min_new_tokens=9"], ["[sampling]", "min_new_tokens = 9 is more than max_new_tokens"]),
        (["model.name=tinny"], ["tinny", "tiny"]),
        (["lora.targets=nothing"], ["lora.targets", "q_proj"]),
        (["eval.tasks=9"], ["too few evaluation tasks", "got: 8", "eval.tasks = 9"]),
        (["env.train=500"], ["not enough different 'max' questions"]),
        (["grpo"], ["not key=value", "got: grpo"]),
    ],
)
def test_a_recipe_that_cannot_be(train, tmp_path, words, said):
    assert refused(train(*words), *said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [None, "stages = [", b"\xff\xff"])
def test_a_recipe_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "recipe.toml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert refused(command("train", path), "recipe")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, ["data cannot be read", "questions.jsonl", "No such file"]),
        (b"\xff\xfe\x00", ["data cannot be read", "questions.jsonl"]),
        (b"\nnot json\n", ["questions.jsonl:2 is not JSON"]),
        (b"[1, 2]\n", ["questions.jsonl:1 is not a JSON object"]),
        (b"", ["a data set is empty"]),
        (b'{"id": "a"}\n', ["questions.jsonl"]),
    ],
)
def test_data_that_is_missing_unreadable_or_empty(train, tmp_path, content, said):
    path = tmp_path / "questions.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert refused(train("env={}", "env.name=musique", f"env.data={path}"), *said)
    assert not (tmp_path / "run").exists()


def test_a_slice_without_rows(train, tmp_path):
    (tmp_path / "questions.jsonl").write_text('{"id": "a"}\n')
    words = ("env={}", "env.name=musique", f"env.data={tmp_path}/questions.jsonl[:5]")
    assert refused(train(*words), "more rows than there are", "expected: 1 rows")


def test_a_model_folder_without_a_tokenizer(train, model):
    for path in model.glob("tokenizer*"):
        path.unlink()
    assert refused(train(f"model.name={model}"), "no readable tokenizer", str(model), "tokenizer.json")


def test_a_model_folder_without_a_chat_template(train, model):
    (model / "chat_template.jinja").unlink(missing_ok=True)
    path = model / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings.pop("chat_template", None)
    path.write_text(json.dumps(settings))
    assert refused(train(f"model.name={model}"), "no chat template", "model.chat_template")


def test_a_model_folder_without_weights_and_one_that_is_not_there(train, model):
    (model / "model.safetensors").unlink()
    assert refused(train(f"model.name={model}"), str(model))
    assert refused(train(f"model.name={model}/absent"), "no model has this name or path")


@pytest.mark.parametrize("where", ["prompt", "demonstration"])
def test_a_prompt_longer_than_the_context(train, monkeypatch, where):
    """2048 tokens of tiny are 2048 bytes."""
    if where == "prompt":
        outcome = train(f"env.system={'x' * 2100}")
        assert refused(outcome, "prompt is longer than the context", "2048", "set episode.max_prompt_tokens")
        return
    monkeypatch.setattr(env, "format_answer", lambda answer, form: answer * 2100)
    assert refused(
        train(),
        "demonstration of task max-0-train",
        "longer than the context",
        "set episode.max_prompt_tokens",
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "a number that is not finite"),
        (math.inf, "a number that is not finite"),
        (None, "None"),
        ([1.0, 0.0], "2 values"),
        ([], "0 values"),
        ("1.0", "a str"),
        (True, "a bool"),
    ],
)
def test_a_reward_that_is_no_number(train, monkeypatch, value, said):
    monkeypatch.setattr(env, "exact", lambda rollout, task: value)
    assert refused(train(), "reward 'exact'", f"returned {said}", "response", "expected: one finite number")


def test_a_reward_that_raises_shows_its_own_traceback_and_the_response(train, monkeypatch):
    def dividing(rollout, task):
        return 1 / 0

    monkeypatch.setattr(env, "exact", dividing)
    outcome = train()
    assert refused(outcome, "raised ZeroDivisionError", "response", "of task 'max-0-", traceback=True)
    assert "in dividing" in outcome.err
    assert "return 1 / 0" in outcome.err


@pytest.mark.integration
def test_a_reward_that_fails_late_loses_no_step_and_the_run_goes_on_once_mended(train, monkeypatch, tmp_path):
    calls = []

    def failing(rollout, task):
        if (tmp_path / "run").exists():  # what is checked before it does not count
            calls.append(rollout)
        return 0.0 if len(calls) <= 8 + 2 * 12 + 12 else None  # the evaluation, two steps, one graded twice

    recipe = {"stages": ["grpo"], "checkpoint_every": 1}
    monkeypatch.setattr(env, "exact", failing)
    assert refused(train(**recipe), "returned None")
    reader = RunReader(tmp_path / "run")
    assert [step.step for step in reader.steps()] == [0, 1]
    kept = [samples_of(reader.find_table("grpo", i))[0].token_ids.tolist() for i in range(2)]
    monkeypatch.undo()
    assert train("--resume", **recipe).code == 0
    reader = RunReader(tmp_path / "run")
    assert [step.step for step in reader.steps()] == [0, 1, 2]
    assert [samples_of(reader.find_table("grpo", i))[0].token_ids.tolist() for i in range(2)] == kept


def test_a_run_directory_that_exists_is_left_as_it_is(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    assert refused(train(), "exists and is not empty", "--resume", "another --out")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_run_directory_that_cannot_be_one(train, tmp_path):
    (tmp_path / "run").write_text("a file")
    assert refused(train(), str(tmp_path / "run"))
    assert (tmp_path / "run").read_text() == "a file"


@pytest.mark.integration
@pytest.mark.parametrize("words", [[], ["seed=3"]])
def test_what_cannot_be_resumed(train, tmp_path, words):
    if words:
        assert train().code == 0
        assert refused(train("--resume", *words), "recipe key 'seed' differs", "got: 3", "expected: 0")
        return
    assert refused(train("--resume"), str(tmp_path / "run"))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("size", "said", "steps"),
    [
        (300_000, "the checkpoint", 3),  # the weights of tiny take 545 kB
        (7_000, "cannot write", 0),  # a step's tokens take more
    ],
)
def test_a_full_disk_loses_nothing_and_the_run_goes_on_once_there_is_space(
    train, tmp_path, size, said, steps
):
    with disk_full_at(size):
        assert refused(train(), said, "got: ", "free space", "--resume")
    reader = RunReader(tmp_path / "run")
    assert len(reader.steps()) == steps

    def drawn():
        return [
            row.token_ids.tolist()
            for step in range(steps)
            for row in samples_of(reader.find_table("sft", step))
        ]

    kept = drawn()
    assert train("--resume").code == 0
    assert drawn() == kept
    assert len(RunReader(tmp_path / "run").steps()) == 6


def test_a_disk_that_is_full_from_the_start(train):
    with disk_full_at(3_000):  # the recipe itself takes some 2,000
        assert refused(train(), "cannot write", "got: ", "free space")


@pytest.mark.parametrize("verb", ["train", "check"])
@pytest.mark.parametrize("tokens", [2048, 1_000_000])
def test_an_answer_as_long_as_the_context_is_refused_by_the_name_of_its_key(train, tmp_path, verb, tokens):
    outcome = train(sampling={"max_new_tokens": tokens})
    if verb == "check":
        outcome = command("check", tmp_path / "recipe.toml", "--json")
    assert refused(
        outcome, "sampling.max_new_tokens leaves no room", f"got: {tokens}, ", "lower sampling.max"
    )
    assert not re.search(r"-\d", outcome.err)
