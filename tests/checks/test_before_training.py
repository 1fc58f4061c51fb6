"""What a run checks before it trains."""

import pytest
from shop import Quiz, Shop
from test_template import CONTENT, ENDS, FIRST

import truing
from truing.config import EpisodeConfig
from truing.errors import DataError, ModelError, RewardError
from truing.models import tiny as tiny_model
from truing.record import RunReader
from truing.rollouts.episode_context import EpisodeContext
from truing.trainer.startup_checks import check_demonstrations, task_findings, task_report
from truing.types.sampling_params import SamplingParams


def episode_context(env, chat):
    return EpisodeContext(chat, env, SamplingParams(max_new_tokens=128), EpisodeConfig(), 2048)


def run_findings(env, chat):
    return list(task_findings(task_report(episode_context(env, chat), env.tasks("train"), env.tasks("eval"))))


def test_a_correct_template_has_no_findings(chat):
    assert run_findings(Quiz(), chat) == []
    assert run_findings(Shop(), chat) == []


def test_a_fault_of_an_environment_is_a_finding(chat):
    shop = Shop()
    shop.rewards = {"always": (lambda rollout, task: 1.0, 1.0)}
    findings = run_findings(shop, chat)
    assert len(findings) == 2
    assert (
        "an empty answer gets the full reward; got 1, expected < 1; make the reward depend on" in findings[0]
    )
    assert "the answers of other tasks get the full reward" in findings[1]


def test_a_doubled_bos_starts_no_run(chat_with):
    chat = chat_with((FIRST, "<|im_start|>" + FIRST))
    chat.tokenizer.bos_token = "<|im_start|>"
    with pytest.raises(ModelError, match="doubled BOS") as caught:
        run_findings(Quiz(), chat)
    assert "truing check" in str(caught.value)


def test_a_template_that_writes_no_stop_is_a_finding(chat_with):
    findings = run_findings(Quiz(), chat_with((ENDS, CONTENT)))
    assert any("writes no stop token after an answer" in text for text in findings)


@pytest.mark.parametrize("per", ["episode", "turn"])
def test_an_advantage_per_turn_needs_rewards_of_turns(mini, tmp_path, per):
    recipe = mini(stages=["grpo"], grpo={"advantage_per": per, "steps": 1})
    if per == "turn":
        with pytest.raises(RewardError, match=r"advantage per turn(.|\n)*none for task"):
            truing.train(recipe, out=tmp_path / "run")
    else:
        truing.train(recipe, out=tmp_path / "run")
    assert (tmp_path / "run").exists() == (per == "episode")


@pytest.mark.integration
def test_a_run_reports_what_its_template_lacks(mini, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    recipe = mini(model={"chat_template": str(template)})
    result = truing.train(recipe, out=tmp_path / "run")
    notes = [event.payload["text"] for event in RunReader(result.run).events() if event.kind == "finding"]
    assert [note for note in notes if "no stop token" in note]


def test_a_prompt_that_lacks_a_message_starts_no_run(chat_with):
    chat = chat_with((FIRST, "{% for message in messages if message['role'] != 'user' %}"))
    with pytest.raises(ModelError, match="does not show all messages") as caught:
        run_findings(Quiz(), chat)
    assert "message 1 (user)" in str(caught.value)


def test_every_demonstration_is_read_before_the_first_step(chat_with):
    """Also those beyond the tasks that the checks sample."""
    chat = chat_with((CONTENT, "{{ message['content'].split('<tool_call>')[0] }}"))
    tasks = [*Quiz().tasks("train"), *Shop().tasks("train")]
    check_demonstrations(chat, tasks[: len(tasks) // 2])
    with pytest.raises(DataError, match="task red cup") as caught:
        check_demonstrations(chat, tasks)
    assert "call 1 (price)" in str(caught.value)


def test_a_run_that_would_train_on_a_turn_that_cannot_be_written_is_refused(mini, tmp_path):
    folder = tmp_path / "model"
    tiny_model.build(folder)
    (folder / "chat_template.jinja").write_text(
        tiny_model.CHATML.replace(CONTENT, "{{ message['content'].split('<tool_call>')[0] }}")
    )
    recipe = mini(stages=["sft"], model={"name": str(folder)}, eval={"tasks": 2})
    with pytest.raises(DataError, match="drops a part of a demonstrated turn"):
        truing.train(recipe, env=Shop(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
