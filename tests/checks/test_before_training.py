"""What a run asks of its chat template before it trains."""

import pytest
from shop import Quiz, Shop
from test_template import CONTENT, ENDS, FIRST

import truing
from truing.config import EpisodeConfig
from truing.contract import SamplingContract
from truing.errors import ModelError, RewardError
from truing.record import RunReader
from truing.rollout.collect import Scene
from truing.training.proof import prove_tasks


def scene(env, chat):
    return Scene(chat, env, SamplingContract(max_new_tokens=128), EpisodeConfig(), 2048)


def proven(env, chat):
    return list(prove_tasks(scene(env, chat), env.tasks("train"), env.tasks("eval")))


def test_a_sound_template_has_nothing_to_tell(chat):
    assert proven(Quiz(), chat) == []
    assert proven(Shop(), chat) == []


def test_what_is_wrong_with_an_environment_is_told(chat):
    shop = Shop()
    shop.rewards = {"always": (lambda rollout, task: 1.0, 1.0)}
    told = proven(shop, chat)
    assert len(told) == 2
    assert "saying nothing earns the full reward; got 1, expected < 1; make the reward look at" in told[0]
    assert "the answers of other tasks earn the full reward" in told[1]


def test_a_doubled_bos_starts_no_run(spoken):
    chat = spoken((FIRST, "<|im_start|>" + FIRST))
    chat.tokenizer.bos_token = "<|im_start|>"
    with pytest.raises(ModelError, match="doubled BOS") as caught:
        proven(Quiz(), chat)
    assert "truing check" in str(caught.value)


def test_a_template_that_writes_no_stop_is_told(spoken):
    told = proven(Quiz(), spoken((ENDS, CONTENT)))
    assert any("writes no stop token after an answer" in text for text in told)


@pytest.mark.parametrize("per", ["episode", "turn"])
def test_an_advantage_per_turn_needs_rewards_of_turns(mini, tmp_path, per):
    recipe = mini(stages=["grpo"], grpo={"advantage_per": per, "steps": 1})
    if per == "turn":
        with pytest.raises(RewardError, match=r"advantage per turn(.|\n)*none for task"):
            truing.train(recipe, out=tmp_path / "run")
    else:
        truing.train(recipe, out=tmp_path / "run")
    assert (tmp_path / "run").exists() == (per == "episode")


def test_a_run_tells_what_its_template_lacks(mini, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    recipe = mini(model={"chat_template": str(template)})
    result = truing.train(recipe, out=tmp_path / "run")
    notes = [event.payload["text"] for event in RunReader(result.run).events() if event.kind == "finding"]
    assert [note for note in notes if "no stop token" in note]
