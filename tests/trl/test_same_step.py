"""A script with the import changed moves the weights as TRL does with the same answers."""

import pytest
import trl
from datasets import Dataset
from recorded import samples_of
from transformers import AutoModelForCausalLM, AutoTokenizer

import truing.trl
from truing.models.builtin import ensure_built
from truing.record import RunReader
from truing.types.token import Origin

pytestmark = pytest.mark.integration

PROMPTS = ["Say one: ", "Say two, please: "]
GROUP = 4
COMMON = {
    "per_device_train_batch_size": len(PROMPTS) * GROUP,
    "num_generations": GROUP,
    "max_completion_length": 12,
    "max_steps": 2,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "bf16": False,
    "use_cpu": True,
    "save_strategy": "no",
    "max_grad_norm": 0.5,
    "disable_tqdm": True,
}


def vowels(completions, **columns):
    return [len(text) / 10 + sum(letter in "aeiou" for letter in text) for text in completions]


def recorded_answers(run):
    """Answers by step and prompt, as ids."""
    reader = RunReader(run)
    answers = []
    for step in reader.steps():
        by_prompt = {}
        for row in samples_of(reader.find_table(step.stage, step.step)):
            sampled = row.origin == Origin.SAMPLED
            prompt = tuple(row.token_ids[~sampled].tolist())
            by_prompt.setdefault(prompt, []).append(row.token_ids[sampled].tolist())
        answers.append(by_prompt)
    return answers


def trl_run(name, tmp_path, answers, changes):
    """Weights and log of TRL's trainer with given answers."""
    remaining = iter(answers)

    def answered(prompt_ids, *rest, **options):
        chosen = {prompt: iter(ids) for prompt, ids in next(remaining).items()}
        ids = [next(chosen[tuple(ids)]) for ids in prompt_ids]
        return (ids, None) if name == "GRPO" else ids

    config, trainer_class = getattr(trl, f"{name}Config"), getattr(trl, f"{name}Trainer")
    trainer = trainer_class(
        model=str(ensure_built("tiny")),
        reward_funcs=vowels,
        args=config(str(tmp_path / "trl"), report_to=[], **(COMMON | changes)),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
    )
    trainer._generate_single_turn = answered
    # transformers gives the pad token's embedding no gradient, and the random model samples that token
    trainer.model.get_input_embeddings().padding_idx = None
    trainer.train()
    return trainer.model.state_dict(), trainer.state.log_history


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("GRPO", {}, id="defaults"),
        pytest.param("GRPO", {"loss_type": "grpo", "beta": 5.0}, id="kl-corrected"),
        pytest.param(
            "GRPO",
            {"loss_type": "grpo", "beta": 5.0, "use_bias_correction_kl": False, "scale_rewards": False},
            id="kl-k3",
        ),
        pytest.param("GRPO", {"loss_type": "dr_grpo", "scale_rewards": "batch"}, id="dr-grpo"),
        pytest.param("GRPO", {"temperature": 0.7, "epsilon_high": 0.3}, id="temperature"),
        pytest.param("GRPO", {"mask_truncated_completions": True, "max_completion_length": 150}, id="masked"),
        pytest.param("RLOO", {}, id="rloo"),
    ],
)
def test_steps_are_those_of_trl(tmp_path, name, changes):
    folder = ensure_built("tiny")
    config, trainer_class = getattr(truing.trl, f"{name}Config"), getattr(truing.trl, f"{name}Trainer")
    ours = trainer_class(
        model=str(folder),
        reward_funcs=vowels,
        args=config(str(tmp_path / "truing"), **(COMMON | changes)),
        train_dataset=[{"prompt": prompt} for prompt in PROMPTS],
    )
    ours.train()
    theirs, log = trl_run(name, tmp_path, recorded_answers(ours.run), changes)
    start = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    moved = max(float((theirs[key] - start[key]).abs().max()) for key in start)
    apart = max(float((ours.model.state_dict()[key] - theirs[key]).abs().max()) for key in theirs)
    print(f"{name} {changes}: moved {moved:.2e}, apart {apart:.2e}")
    for line, other in zip(ours.state.log_history[:2], log[:2], strict=True):
        for key in ("reward", "reward_std", "rewards/vowels/mean"):
            assert line[key] == pytest.approx(other[key], rel=1e-5), key
        scale = 1.0 if name == "GRPO" else COMMON["max_completion_length"]
        assert line["grad_norm"] * scale == pytest.approx(other["grad_norm"], rel=1e-3)
        assert line["learning_rate"] == pytest.approx(other["learning_rate"])
    assert moved > 1e-3
    assert apart < 2e-5


WORDS = ("one", "seven", "apple", "bird")


def said(word):
    """A conversation of two turns, which is rendered with special tokens."""
    return [
        {"role": "system", "content": "Spell."},
        {"role": "user", "content": word},
        {"role": "assistant", "content": "-".join(word)},
        {"role": "user", "content": "Again!"},
        {"role": "assistant", "content": word},
    ]


TEXT = [{"text": f"{w} is spelled {'-'.join(w)}"} for w in WORDS]
PAIRS = [{"prompt": f"Spell {w}: ", "completion": "-".join(w)} for w in WORDS]
SAID_PAIRS = [{"prompt": said(w)[:2], "completion": said(w)[2:3]} for w in WORDS]
MESSAGES = [{"messages": said(w)} for w in WORDS]
TURNS = [[{"from": m["role"], "value": m["content"]} for m in said(w)] for w in WORDS]
RENDERED = [{"text": f"<|im_start|>user\n{w}<|im_end|>\n"} for w in WORDS]


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        pytest.param(PAIRS, {}, id="completions"),
        pytest.param(PAIRS, {"completion_only_loss": False}, id="pairs"),
        pytest.param(SAID_PAIRS, {"completion_only_loss": False}, id="pairs of messages"),
        pytest.param(TEXT, {}, id="text"),
        pytest.param(TEXT, {"max_length": 16}, id="cut text"),
        pytest.param(RENDERED, {}, id="text with special tokens"),
        pytest.param(MESSAGES, {}, id="messages"),
        pytest.param(MESSAGES, {"max_length": 30, "truncation_mode": "keep_end"}, id="end of messages"),
        pytest.param([{"conversations": each} for each in TURNS], {}, id="conversations"),
        pytest.param(
            [{"word": w} for w in WORDS], {"formatting_func": lambda row: row["word"]}, id="function"
        ),
    ],
)
def test_sft_steps_are_those_of_trl(tmp_path, rows, changes):
    folder = ensure_built("tiny")
    trainer = {key: changes.get(key) for key in ("formatting_func",)}
    common = {
        "per_device_train_batch_size": 3,
        "max_steps": 2,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "learning_rate": 1e-3,
        "bf16": False,
        "use_cpu": True,
        "save_strategy": "no",
        "disable_tqdm": True,
        **{key: value for key, value in changes.items() if key not in trainer},
    }
    ours = truing.trl.SFTTrainer(
        str(folder),
        truing.trl.SFTConfig(str(tmp_path / "truing"), **common),
        train_dataset=rows[:3],
        eval_dataset=rows[3:],
        **trainer,
    )
    before = ours.evaluate()["eval_loss"]
    ours.train()
    theirs = trl.SFTTrainer(
        str(folder),
        trl.SFTConfig(str(tmp_path / "trl"), report_to=[], **common),
        train_dataset=Dataset.from_list(rows[:3]),
        eval_dataset=Dataset.from_list(rows[3:]),
        processing_class=AutoTokenizer.from_pretrained(folder),
        **trainer,
    )
    assert before == pytest.approx(theirs.evaluate()["eval_loss"], rel=1e-5)
    theirs.train()
    logs = [
        [line["eval_loss"] for line in each.state.log_history if "eval_loss" in line]
        for each in (ours, theirs)
    ]
    assert logs[0] == pytest.approx([before, *logs[1]], rel=1e-3)
    assert ours.evaluate(metric_key_prefix="test") == {"test_loss": pytest.approx(logs[1][-1], rel=1e-3)}
    steps = [[line for line in each.state.log_history if "loss" in line] for each in (ours, theirs)]
    for line, other in zip(*steps, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert line["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    weights = theirs.model.state_dict()
    apart = max(float((ours.model.state_dict()[key] - weights[key]).abs().max()) for key in weights)
    assert apart < 2e-5
