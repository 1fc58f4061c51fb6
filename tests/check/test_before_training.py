"""What a run asks of its chat template before it trains."""

import pytest
from shop import PRICES, Quiz, Shop
from test_template import CONTENT, ENDS, FIRST

import truing
from truing.check import check_template
from truing.config import EpisodeConfig
from truing.contract import SamplingContract
from truing.errors import ModelError
from truing.record import RunReader
from truing.rollout.collect import Scene
from truing.train.proof import prove_template


def scene(env, chat):
    return Scene(chat, env, SamplingContract(max_new_tokens=128), EpisodeConfig(), 2048)


def proven(env, chat):
    return list(prove_template(scene(env, chat), env.tasks("train")))


def test_a_sound_template_has_nothing_to_tell(chat):
    assert proven(Quiz(), chat) == []
    assert proven(Shop(), chat) == []


def test_no_world_is_opened_and_nothing_graded(chat, monkeypatch):
    def never(self, task):
        raise AssertionError("a world was opened")

    monkeypatch.setattr(Shop, "open", never)
    shop = Shop()
    shop.rewards = {"never": (lambda rollout, task: 1 / 0, 1.0)}
    report = check_template(scene(shop, chat), shop.tasks("train"))
    assert report["the stop is trained"].count == len(PRICES) // 2
    assert all(result.findings == () for result in report.values())


def test_a_doubled_bos_starts_no_run(spoken):
    chat = spoken((FIRST, "<|im_start|>" + FIRST))
    chat.tokenizer.bos_token = "<|im_start|>"
    with pytest.raises(ModelError, match="doubled BOS") as caught:
        proven(Quiz(), chat)
    assert "truing check" in str(caught.value)


def test_a_template_that_writes_no_stop_is_told(spoken):
    told = proven(Quiz(), spoken((ENDS, CONTENT)))
    assert "writes no stop token after an answer" in told[0]
    assert "demonstration" in told[1]


def test_a_run_tells_what_its_template_lacks(mini, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    recipe = mini(model={"chat_template": str(template)})
    result = truing.train(recipe, out=tmp_path / "run")
    notes = [event.payload["text"] for event in RunReader(result.run).events() if event.kind == "note"]
    assert [note for note in notes if "no stop token" in note]
