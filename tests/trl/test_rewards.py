"""TRL's reward functions get all completions of a generation at once."""

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from truing.errors import RewardError
from truing.models.builtin import ensure_built
from truing.models.tiny import byte_tokenizer
from truing.rewards import NotApplicable, grade, prepare
from truing.trl.data.env import RowsEnv
from truing.trl.data.reward_models import RewardModel
from truing.trl.data.rewards import Scorer, rewards_of
from truing.types.rollout import Rollout, Turn
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason, Status

ROWS = [{"prompt": f"Say {i}", "answer": i} for i in range(2)]


def rollout(env, task, index, text):
    ids = torch.tensor([*text.encode(), 257])
    empty = torch.empty(0)
    turn = Turn(
        empty.long(), empty.to(torch.uint8), ids, torch.zeros(len(ids), dtype=torch.uint8),
        torch.zeros(len(ids), dtype=torch.bool), torch.zeros(len(ids)), FinishReason.STOP, 0, "",
    )  # fmt: skip
    done = env.tasks("train")[task]
    return Rollout(f"{task}/{index}", str(task), done, (turn,), text, Status.DONE, SamplingParams())


def scorer_of(**functions):
    env = RowsEnv({"train": ROWS})
    scorer = Scorer(functions, env, byte_tokenizer(), {"trainer_state": "state"})
    return scorer, [rollout(env, i // 2, i % 2, "ab" * (i + 1)) for i in range(4)]


def test_functions_are_called_once_with_columns_and_scores_are_weighted():
    calls = []

    def first(prompts, completions, completion_ids, answer, trainer_state, **rest):
        calls.append(
            (prompts, completions, [len(ids) for ids in completion_ids], answer, trainer_state, rest)
        )
        return [1.0, None, float("nan"), 2]

    async def second(completions, **columns):
        return [len(text) for text in completions]

    scorer, rollouts = scorer_of(first=first, second=second)
    rewards = rewards_of(scorer, [2.0, 0.5])
    prepare(rewards, rollouts)
    parts = [grade(each, rewards)[:2] for each in rollouts]
    assert calls == [
        (
            ["Say 0", "Say 0", "Say 1", "Say 1"],
            ["ab", "abab", "ababab", "abababab"],
            [3, 5, 7, 9],
            [0, 0, 1, 1],
            "state",
            {},
        )
    ]
    assert parts == [
        (3.0, {"first": 1.0, "second": 2.0}),
        (2.0, {"second": 4.0}),
        (3.0, {"second": 6.0}),
        (8.0, {"first": 2.0, "second": 8.0}),
    ]


def test_a_rollout_that_was_not_prepared_is_scored_alone():
    scorer, rollouts = scorer_of(count=lambda completions, **_: [len(completions)] * len(completions))
    assert scorer.score("count", rollouts[0]) == 1.0
    scorer.prepare(rollouts)
    assert scorer.score("count", rollouts[0]) == 4.0

    logged, called = [], []

    def logs(completions, log_metric, **columns):
        log_metric("length", len(completions))
        return [0.0] * len(completions)

    scorer, rollouts = scorer_of(logs=logs, other=lambda completions, **_: called.append(1) or [0.0])
    scorer.extras = {"log_metric": lambda name, value: logged.append(value), "log_extra": None}
    scorer.score("logs", rollouts[0])  # before the training, or again: no metric, and no other function
    assert (logged, called) == ([], [])
    assert isinstance(scorer_of(none=lambda **_: [None])[0].score("none", rollouts[0]), NotApplicable)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda completions, **_: completions[0]["content"], "completions are texts, as the prompts"),
        (lambda **_: [0.0] * 3, "a list of 4"),
        (lambda **_: 1.0, "a list of 4"),
        (lambda **_: ["good"] * 4, "other than a number"),
        (lambda **_: ["1.0"] * 4, "other than a number"),
    ],
)
def test_wrong_functions_are_errors(function, text):
    scorer, rollouts = scorer_of(wrong=function)
    with pytest.raises(RewardError, match=text):
        scorer.prepare(rollouts)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda prompts: [], r"let it take \*\*kwargs"),
        (lambda prompt, completion, **_: [], "prompt: it gets prompts; completion: it gets completions"),
        (lambda solution, **_: [], "solution: there is no such column"),
        ({"score": 1}, "cannot be called"),
    ],
)
def test_a_signature_that_does_not_fit_is_an_error_before_the_training(function, text):
    with pytest.raises(RewardError, match=text):
        scorer_of(wrong=function)[0].check_signatures()


def test_a_signature_may_take_some_arguments_and_starred_ones():
    scorer_of(named=lambda completions, answer, **_: [], all=lambda *_, **kwargs: [])[0].check_signatures()


def test_a_column_that_some_rows_lack_is_none_there():
    env = RowsEnv({"train": [{"prompt": "a"}, {"prompt": "b", "answer": 1}]})
    seen = []
    scorer = Scorer(
        {"see": lambda answer, **_: seen.extend(answer) or [0.0] * len(answer)}, env, byte_tokenizer()
    )
    scorer.prepare([rollout(env, i, 0, "a") for i in range(2)])
    assert seen == [None, 1]


@torch.no_grad()
def test_a_reward_model_scores_text_and_messages(tmp_path):
    config = LlamaConfig(
        vocab_size=259, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, num_labels=1, pad_token_id=258,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "judge")
    tokenizer = AutoTokenizer.from_pretrained(ensure_built("tiny"))
    tokenizer.save_pretrained(tmp_path / "judge")
    judge = RewardModel(str(tmp_path / "judge"), None, {})
    assert judge.__name__ == "judge"
    alone = [float(model(torch.tensor([list(text.encode())])).logits[0, 0]) for text in ("ab", "acde")]
    assert judge(prompts=["a", "a"], completions=["b", "cde"], answer=[1, 2]) == pytest.approx(
        alone, rel=1e-4
    )
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rendered = tokenizer.apply_chat_template(chat, tokenize=False)
    ids = tokenizer(rendered, add_special_tokens=False, return_tensors="pt")["input_ids"]
    assert judge(prompts=[chat[:1]], completions=[chat[1:]]) == pytest.approx(
        [float(model(ids).logits[0, 0])], rel=1e-4
    )
    judge.tokenizer.chat_template = "{{ strftime_now('%Y%m%d') }}" + tokenizer.chat_template
    assert judge._text(chat[:1], chat[1:]) == "20260101" + rendered  # whatever the day
