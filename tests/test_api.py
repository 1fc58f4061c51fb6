"""Training from Python: your own rewards, your own environment, a recipe in any form."""

import functools
import inspect
from types import SimpleNamespace

import pytest
import torch
from recorded import samples_of

import truing
from truing.config import resolve, to_toml
from truing.envs import checked_tasks, make_env
from truing.envs.wrappers import with_tools
from truing.errors import RecipeError, RecordError, RewardError
from truing.record import RunReader
from truing.terminal.run_result import command_name, print_result
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task


def length(rollout, task):
    return float(len(rollout.turns[0].token_ids))


def is_short(rollout, task):
    return float(len(rollout.turns[0].token_ids) < 4)


class Echo:
    """Say a letter again; a whole environment in a few lines."""

    notes = ("made in a test",)

    def __init__(self):
        self.rewards = {"exact": (lambda rollout, task: float(rollout.text == task.answer), 1.0)}

    def tasks(self, split):
        letters = "abcdefghijklmnop" if split == "train" else "qrstuvwx"
        return [
            Task(letter, "echo", ({"role": "user", "content": letter},), letter, letter) for letter in letters
        ]


def rows(run, stage="grpo", step=0):
    return samples_of(RunReader(run).find_table(stage, step))


def test_rewards_are_plain_functions_and_add_up(mini, tmp_path):
    result = truing.train(mini(stages=["grpo"]), rewards=[length, is_short], out=tmp_path / "run")
    for row in rows(result.run):
        drawn = int(row.policy_mask.sum())
        assert row.reward_parts == {"length": drawn, "is_short": float(drawn < 4)}
        assert row.reward == drawn + float(drawn < 4)
    assert list(result.evaluations["base"].parts) == ["length", "is_short"]


def test_rewards_may_have_names_and_weights(mini, tmp_path):
    rewards = {"tokens": (length, 0.5), "watched": (is_short, 0.0)}
    run = truing.train(mini(stages=["grpo"]), rewards=rewards, out=tmp_path / "run").run
    for row in rows(run):
        assert row.reward == 0.5 * int(row.policy_mask.sum())
        assert row.reward_parts.keys() == {"tokens", "watched"}


def test_without_rewards_the_environment_judges(mini, tmp_path):
    run = truing.train(mini(stages=["grpo"]), out=tmp_path / "run").run
    assert rows(run)[0].reward_parts.keys() == {"exact", "partial"}


def test_an_environment_may_be_your_own_object(mini, tmp_path):
    seen = []
    table = mini(env={"name": "echo"})
    result = truing.train(
        table, env=Echo(), out=tmp_path / "run", on_event=lambda kind, facts: seen.append((kind, facts))
    )
    assert set(result.evaluations["base"].reward) == set("qrstuvwx")
    assert {row.family for row in rows(result.run)} == {"echo"}
    assert ("note", {"text": "made in a test"}) in seen


@pytest.mark.integration
def test_a_run_in_your_environment_is_evaluated_again(mini, tmp_path):
    table = mini(env={"name": "echo"})
    result = truing.train(table, env=Echo(), out=tmp_path / "run")
    again = truing.evaluate(result.run, env=Echo())
    assert again.reward == result.evaluations["after_grpo"].reward
    before = truing.evaluate(result.run, env=Echo(), step=3, stage="sft")
    assert before.reward == result.evaluations["after_sft"].reward
    with pytest.raises(RecipeError, match="unknown environment 'echo'"):
        truing.evaluate(result.run)


def test_your_environment_can_be_checked(mini):
    report = truing.check(mini(stages=["grpo"]), env=Echo())
    assert report.findings == []
    assert "✓ the demonstration scores full  24\n" in str(report)
    always = truing.check(mini(stages=["grpo"]), env=Echo(), rewards={"always": (lambda r, t: 1.0, 1.0)})
    assert "an empty answer gets the full reward" in {finding.what for finding in always.findings}


def test_a_run_is_shown_on_stderr_and_says_how_to_go_on_when_it_is_stopped(mini, tmp_path, capsys):
    run = tmp_path / "run"

    def interrupt(rollout, task):
        if run.exists():
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        truing.train(mini(stages=["grpo"]), env=Echo(), rewards=[interrupt], out=run)
    shown = capsys.readouterr().err
    assert "note: made in a test" in shown
    assert f"--out {run} --resume" in shown


@pytest.mark.integration
def test_a_run_in_python_ends_as_on_the_command_line(mini, tmp_path, capsys):
    result = truing.train(mini(stages=["sft"]), out=tmp_path / "run")
    shown = capsys.readouterr().out
    assert "after_sft" in shown
    assert f"run: {tmp_path / 'run'}\n" in shown
    assert f" check {tmp_path / 'run'}\n" in shown
    print_result(result)
    assert capsys.readouterr().out == shown
    truing.train(mini(stages=["sft"]), out=tmp_path / "quiet", on_event=lambda kind, facts: None)
    assert capsys.readouterr().out == ""


def test_help_names_types_that_the_package_offers():
    signature = inspect.signature(truing.train)
    assert str(signature).startswith(
        "(recipe: 'RecipeSource', *, rewards: 'Sequence[RewardFn] | Rewards | None'"
    )
    assert signature.return_annotation == "TrainResult"
    assert isinstance(truing.TrainResult, type)


def test_the_next_command_can_be_called_from_a_script(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["mine.py"])
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert command_name() == "python -m truing"
    (tmp_path / "truing").touch()
    monkeypatch.chdir(tmp_path)
    assert command_name() == "truing"


def test_your_environment_with_your_rewards_keeps_its_tasks(mini, tmp_path):
    result = truing.train(mini(stages=["grpo"]), env=Echo(), rewards=[length], out=tmp_path / "run")
    assert list(result.evaluations["base"].parts) == ["length"]
    assert set(result.evaluations["base"].reward) == set("qrstuvwx")


def test_tools_turn_an_answer_into_an_episode(mini, tmp_path):
    @truing.tool
    def spell(letter: str) -> str:
        """Spell a letter."""
        return letter * 2

    result = truing.train(
        mini(stages=["grpo"]), env=Echo(), tools=[spell], rewards=[length], out=tmp_path / "run"
    )
    for row in rows(result.run):
        prompt = row.token_ids[: row.prompt_length]
        assert b"spell" in bytes(prompt[prompt < 256].tolist())
        assert row.ended_by in ("environment", "length")


def test_tools_are_added_beside_those_of_the_environment():
    env = with_tools(make_env("workspace", {"kinds": ["note"], "train": 2, "eval": 2}), [truing.tool(shout)])
    task = checked_tasks(env)["train"][0]
    assert [spec.name for spec in task.tools][-1] == "shout"
    episode = env.open(task)
    calls = (ToolCall("shout", {"text": "a"}), ToolCall(task.tools[0].name, {}))
    answers = [message["content"] for message in episode.reply(AssistantMessage(calls=calls))]
    assert answers[0] == "A"
    assert "no tool" not in answers[1]
    assert episode.outcome()  # the environment's own
    named = with_tools(Echo(), [truing.tool(shout)])
    with pytest.raises(RecipeError, match=r"two tools have one name\n  got: shout"):
        with_tools(named, [truing.tool(shout)])


def shout(text: str) -> str:
    """A text in capitals."""
    return text.upper()


def test_an_environment_that_answers_calls_itself_takes_no_tools():
    class OwnEpisodes(Echo):
        def open(self, task):
            return SimpleNamespace(reply=lambda message: (), outcome=dict)

    with pytest.raises(RecipeError, match=r"answers calls itself[\s\S]*the tools shout[\s\S]*ToolEpisode"):
        with_tools(OwnEpisodes(), [truing.tool(shout)])


@pytest.mark.integration
def test_a_recipe_may_be_a_table_a_path_or_resolved(mini, tmp_path):
    table = mini(stages=["sft"], sft={"steps": 1})
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(resolve(table)))
    forms = [table, path, str(path), resolve(table)]
    runs = [truing.train(form, out=tmp_path / str(i)).run for i, form in enumerate(forms)]
    assert len({(run / "recipe.toml").read_text() for run in runs}) == 1
    drawn = [torch.cat([row.token_ids for row in rows(run, "sft")]).tolist() for run in runs]
    assert drawn[0] == drawn[1] == drawn[2] == drawn[3]


@pytest.mark.integration
def test_without_out_each_run_has_a_new_directory_under_runs(mini, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = mini(stages=["sft"], sft={"steps": 1})
    runs = [truing.train(table).run for _ in range(2)]
    assert runs[0] != runs[1]
    assert all(run.parent.name == "runs" and run.name.startswith("mini-") for run in runs)


def test_a_run_that_is_not_there_is_not_called_a_recipe(tmp_path):
    with pytest.raises(RecordError, match="there is no run and no recipe"):
        truing.evaluate(tmp_path / "runs" / "nope")
    with pytest.raises(RecipeError, match="there is no recipe"):
        truing.evaluate(tmp_path / "nope.toml")


def test_to_resume_is_to_say_which_run(mini):
    with pytest.raises(RecordError, match="needs a run directory"):
        truing.train(mini(), resume=True)


def test_a_broken_reward_names_the_response_and_keeps_its_traceback(mini, tmp_path):
    def fails_later(rollout, task):
        return {}["score"]

    with pytest.raises(RewardError, match=r"fails_later.* raised KeyError") as error:
        truing.train(mini(stages=["grpo"]), rewards=[fails_later], out=tmp_path / "run")
    frames = []
    trace = error.value.__cause__.__traceback__
    while trace:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] == "fails_later"


@pytest.mark.parametrize(
    "rewards",
    [[lambda r, t: 1.0, lambda r, t: 2.0], [functools.partial(float, 1.0)]],
    ids=["twins", "nameless"],
)
def test_reward_functions_without_a_name_of_their_own_are_refused(mini, tmp_path, rewards):
    with pytest.raises(RewardError, match="a name of its own"):
        truing.train(mini(), rewards=rewards, out=tmp_path / "run")
