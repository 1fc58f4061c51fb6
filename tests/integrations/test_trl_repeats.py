"""Repeated rows, generations, prompts and draws, and lost optimizer moments, in audits of TRL."""

import datasets
import pytest
import trl
from trl_options import random_reward

from truing.doctor.verdict import Verdict
from truing.integrations.trl import audit

pytestmark = pytest.mark.integration


def asked(first, count):
    return datasets.Dataset.from_list(
        [{"prompt": [{"role": "user", "content": f"what is {i}?"}]} for i in range(first, first + count)]
    )


@pytest.fixture
def trainer(folder, config):
    def made(evaluated=None, **changes):
        own = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 6}
        return trl.GRPOTrainer(
            model=str(folder),
            args=trl.GRPOConfig(**config | own | {"max_steps": 4} | changes),
            reward_funcs=[random_reward],
            train_dataset=asked(0, 16),
            eval_dataset=evaluated,
        )

    return made


def verdicts_of(found):
    """The verdict of each rule that found something."""
    return {code: each[0].claim.verdict for code, each in found.diagnosis.findings.items()}


def steps_of(found):
    """The steps that each rule checked."""
    return {each.code: each.steps for each in found.diagnosis.results()}


def never_renewed(real):
    def prepare(self, batch):
        if self.model.training and self._buffered_inputs is not None:
            return self._buffered_inputs[self._step % self.args.steps_per_generation]
        return real(self, batch)

    return prepare


def always_the_first_part(real):
    def prepare(self, batch):
        inputs = real(self, batch)
        return self._buffered_inputs[0] if self.model.training else inputs

    return prepare


def generated_once(real):
    kept = []

    def generate(self, inputs):
        kept[:] = kept or [real(self, inputs)]
        return dict(kept[0])

    return generate


def first_prompts(real):
    kept = []

    def generate(self, inputs):
        kept[:] = kept or inputs
        return real(self, kept)

    return generate


def group_alike(real):
    def generate(self, prompt_ids, *args, **kwargs):
        completions, *others = real(self, prompt_ids, *args, **kwargs)
        return [completions[i // 4 * 4] for i in range(len(completions))], *others

    return generate


PLANTED = {
    "a generation for ever": ("_prepare_inputs", never_renewed, {}, "OPT011", Verdict.PROVEN),
    "a part of a generation twice in a step": (
        "_prepare_inputs",
        always_the_first_part,
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
        "OPT011",
        Verdict.PROVEN,
    ),
    "a part of a generation never": (
        "_prepare_inputs",
        always_the_first_part,
        {"steps_per_generation": 2, "per_device_train_batch_size": 4, "loss_type": "grpo"},
        "OPT011",
        Verdict.PROVEN,
    ),
    "answers of the first generation": (
        "_generate_and_score_completions",
        generated_once,
        {},
        "SMP008",
        Verdict.EVIDENCE,
    ),
    "prompts of the first generation": (
        "_generate_and_score_completions",
        first_prompts,
        {},
        "SMP010",
        Verdict.SUSPECT,
    ),
    "one seed for a group": ("_generate_single_turn", group_alike, {}, "SMP008", Verdict.EVIDENCE),
}


@pytest.mark.parametrize("name", PLANTED)
def test_repeats_are_reported(trainer, monkeypatch, name):
    method, wrap, changes, code, verdict = PLANTED[name]
    monkeypatch.setattr(trl.GRPOTrainer, method, wrap(getattr(trl.GRPOTrainer, method)))
    trl_trainer = trainer(**changes)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert verdicts_of(result)[code] is verdict


def test_several_passes_over_a_generation_within_one_step_are_no_fault(trainer):
    trl_trainer = trainer(
        gradient_accumulation_steps=4, steps_per_generation=2, num_iterations=2, loss_type="grpo", max_steps=2
    )
    result = audit(trl_trainer)
    trl_trainer.train()
    assert "OPT011" not in verdicts_of(result)
    assert steps_of(result)["OPT011"] == 2


def test_an_optimiser_that_forgets_is_proven(trainer):
    trl_trainer = trainer(max_steps=2)
    trl_trainer.create_optimizer()
    real = trl_trainer.optimizer.step

    def step(*args, **kwargs):
        trl_trainer.optimizer.state.clear()
        return real(*args, **kwargs)

    trl_trainer.optimizer.step = step
    result = audit(trl_trainer)
    trl_trainer.train()
    assert verdicts_of(result)["OPT010"] is Verdict.PROVEN


@pytest.mark.parametrize(("first", "suspected"), [(0, True), (100, False)])
def test_prompts_of_the_evaluation_are_suspected(trainer, first, suspected):
    trl_trainer = trainer(
        asked(first, 16), eval_strategy="steps", eval_steps=1, max_steps=2, per_device_eval_batch_size=8
    )
    result = audit(trl_trainer)
    trl_trainer.train()
    assert (verdicts_of(result).get("RWD007") is Verdict.SUSPECT) == suspected
    assert steps_of(result)["RWD007"] == 1


@pytest.mark.parametrize("chosen", [[0], [*range(24)]])
def test_one_example_for_ever_is_suspected(folder, config, monkeypatch, chosen):
    order = [chosen[i % len(chosen)] for i in range(24)]
    monkeypatch.setattr(trl.SFTTrainer, "_get_train_sampler", lambda self, *_: order)
    made = trl.SFTTrainer(
        model=str(folder),
        args=trl.SFTConfig(**config | {"max_steps": 3, "per_device_train_batch_size": 4}),
        train_dataset=datasets.Dataset.from_list([{"text": f"{i} and {i} is {2 * i}"} for i in range(24)]),
    )
    result = audit(made)
    made.train()
    assert ("SMP010" in verdicts_of(result)) == (chosen == [0])
