"""Micro-batches within a budget, and what happens if memory runs out anyway."""

import json
from dataclasses import asdict

import pytest
import torch
from peft.tuners.lora import LoraLayer
from samples import sample
from test_step import GROUPS, GRPO, gradient_of, learner, on_policy
from transformers import AutoModelForCausalLM, GPT2Config

import truing
import truing.learner.memory_budget
import truing.learner.step
import truing.trainer.run
import truing.trainer.step_record
from truing.errors import ModelError, RecipeError
from truing.learner.memory_budget import MemoryBudget, MemoryNeed, measure_budget, measure_need
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.onednn_linear import OneDnnLinear
from truing.models.forward.score import CHUNK_BYTES, KEPT_BYTES
from truing.models.lora import add_lora, trainable_parameters, training_mode
from truing.record import RunReader
from truing.utils.memory import bytes_free, bytes_in_use, is_out_of_memory, peak_bytes, reset_peak

CPU = torch.device("cpu")
NEED = MemoryNeed(fixed=1000, per_token=10, per_token_recomputed=2)


def of_lengths(*lengths):
    return [sample([5 + i], list(range(9, 8 + n)), name=f"s{i}", group="x") for i, n in enumerate(lengths)]


def test_what_fits_by_hand():
    budget = MemoryBudget.from_bytes(NEED, budget=1205, max_tokens=64)
    assert (budget.fits, budget.fits_recomputed) == (20, 102)
    assert NEED.peak_bytes(MicroBatch([], 7)) == 1070
    assert NEED.peak_bytes(MicroBatch([], 7, recompute=True)) == 1014
    assert MemoryBudget.from_bytes(MemoryNeed(1000, 10), budget=1205, max_tokens=64).fits_recomputed == 0
    with pytest.raises(RecipeError, match="memory is less than a step needs"):
        MemoryBudget.from_bytes(NEED, budget=1009, max_tokens=64)


def test_samples_that_do_not_fit_are_computed_twice(tiny):
    samples = of_lengths(6, 30, 8, 9)
    budget = MemoryBudget(NEED, most=64, fits=16, fits_recomputed=100)
    results = [
        ([s.sample_id for s in micro.samples], micro.recompute)
        for micro in budget.micro_batches(tiny.model, samples)
    ]
    assert sorted(name for names, _ in results for name in names) == ["s0", "s1", "s2", "s3"]
    assert [(names, again) for names, again in results if again] == [(["s1"], True)]
    # where layers cannot be computed twice, it is tried alone
    alone = list(MemoryBudget(NEED, most=64, fits=16).micro_batches(tiny.model, samples))
    assert not any(micro.recompute for micro in alone)


def test_the_gradient_is_the_same_where_layers_are_computed_twice(tiny):
    samples = on_policy(tiny.model, GROUPS)
    start = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    whole = gradient_of(tiny.model, GRPO, samples)
    tiny.model.load_state_dict(start, strict=False)
    twice = gradient_of(tiny.model, GRPO, samples, fits=1, fits_recomputed=1000)
    for name, gradient in whole.items():
        assert torch.allclose(gradient, twice[name], atol=1e-6), name


@pytest.fixture
def scarce(monkeypatch):
    """Memory for so many tokens: beyond, the forward of a micro-batch fails, or its backward half-way."""
    tried, score = [], truing.learner.step.score

    def arm(limit, *, twice=10**9, late=False):
        def failing(model, batch, wanted, *, recompute, **about):
            tokens = sum(len(each) for each in batch.samples)
            tried.append((tokens, recompute))
            scores = score(model, batch, wanted, recompute=recompute, **about)
            if tokens > (twice if recompute else limit):
                if not late:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                scores.logprob.register_hook(lambda _: (_ for _ in ()).throw(MemoryError("late")))
            return scores

        monkeypatch.setattr(truing.learner.step, "score", failing)
        return tried

    return arm


@pytest.mark.parametrize("late", [False, True])
def test_out_of_memory_repeats_the_step_in_smaller_parts(tiny, scarce, late):
    samples = on_policy(tiny.model, GROUPS)
    start = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    whole = gradient_of(tiny.model, GRPO, samples)
    tiny.model.load_state_dict(start, strict=False)
    tried = scarce(9, late=late)
    parts = gradient_of(tiny.model, GRPO, samples)
    assert tried[0][0] > 9
    assert sum(tokens for tokens, _ in tried[-4:]) <= sum(map(len, samples))
    for name, gradient in whole.items():
        assert torch.allclose(gradient, parts[name], atol=1e-6), name


def test_one_sample_that_does_not_fit_is_computed_twice_or_refused(tiny, scarce):
    rows = on_policy(tiny.model, GROUPS[:2])
    stage_learner = learner(tiny.model, GRPO, fits_recomputed=1000)
    tried = scarce(3)
    truing.learner.step.train_step(stage_learner, rows, (0, "test", 0))
    assert tried[0] == (sum(map(len, rows)), False)
    assert tried[-1] == (sum(map(len, rows)), True)
    assert stage_learner.memory_budget.fits < min(map(len, rows))
    scarce(3, twice=3)
    with pytest.raises(ModelError, match="does not fit into memory"):
        truing.learner.step.train_step(stage_learner, rows, (0, "test", 1))


def test_another_error_is_no_lack_of_memory(tiny, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(truing.learner.step, "score", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        truing.learner.step.train_step(learner(tiny.model, GRPO), GROUPS, (0, "test", 0))
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    assert is_out_of_memory(RuntimeError("could not create a primitive"))
    with pytest.raises(RuntimeError) as raised:  # oneDNN has such words for shapes that do not fit
        OneDnnLinear(8, 4)(torch.ones(3, 5))
    assert not is_out_of_memory(raised.value)


def test_a_model_of_few_positions_is_measured_within_them():
    config = GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=4, n_positions=40)
    model = AutoModelForCausalLM.from_config(config)
    assert measure_need(model, trainable_parameters(model), 0, 10).per_token > 0


def test_need_is_measured_on_the_policy(tiny):
    parameters = trainable_parameters(tiny.model)
    whole = measure_need(tiny.model, parameters, in_use=7, max_tokens=100)
    assert whole.per_token_recomputed < whole.per_token
    trained = sum(p.nbytes for p in parameters.values())
    logits = 4 * tiny.model.config.vocab_size * 100
    assert whole.fixed == 7 + 3 * trained + 6 * logits
    assert measure_need(tiny.model, parameters, in_use=7, max_tokens=10**9).fixed == (
        7 + 3 * trained + 2 * KEPT_BYTES + 4 * CHUNK_BYTES["cpu"]
    )
    compared = measure_need(tiny.model, parameters, in_use=7, max_tokens=100, reference=True)
    assert compared.fixed - whole.fixed == trained
    policy = add_lora(tiny.model, rank=2, alpha=4.0, dropout=0.0, targets="all-linear", seed=0)
    assert measure_need(policy, trainable_parameters(policy), in_use=7, max_tokens=100).fixed < whole.fixed


def test_what_dropout_keeps_is_counted(tiny):
    policy = add_lora(tiny.model, rank=2, alpha=4.0, dropout=0.1, targets="all-linear", seed=0)
    policy.eval()
    with_masks = measure_need(policy, trainable_parameters(policy), in_use=0, max_tokens=100)
    for layer in policy.modules():
        if isinstance(layer, LoraLayer):
            layer.lora_dropout["default"] = torch.nn.Identity()
    assert with_masks.per_token > 1.3 * measure_need(policy, trainable_parameters(policy), 0, 100).per_token


def test_a_budget_is_no_more_than_there_is(tiny, monkeypatch):
    monkeypatch.setattr(truing.learner.memory_budget, "bytes_free", lambda device: 10**9)
    parameters = trainable_parameters(tiny.model)
    huge, all_of_it = (
        measure_budget(tiny.model, parameters, budget, 100) for budget in (10**15, bytes_in_use(CPU) + 10**9)
    )
    assert huge.fits == pytest.approx(all_of_it.fits, rel=0.05)


def test_memory_of_this_process():
    reset_peak(CPU)
    before = bytes_in_use(CPU)
    assert 0 < before < 10**11
    assert bytes_free(CPU) > 0
    tensor = torch.ones(50_000_000)
    assert peak_bytes(CPU) >= before + tensor.nbytes * 0.9
    del tensor
    before = bytes_in_use(CPU)
    reset_peak(CPU)
    assert peak_bytes(CPU) < before + 200_000_000 * 0.9


def test_too_little_memory_is_an_error_before_anything_is_written(mini, tmp_path):
    with pytest.raises(RecipeError, match="memory is less than a step needs"):
        truing.train(mini(optimizer={"memory": "0.01GB"}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_dropout_after_memory_ran_out_is_what_it_is_straight_away(tiny, scarce, monkeypatch):
    policy = add_lora(tiny.model, rank=4, alpha=8.0, dropout=0.5, targets="all-linear", seed=0)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    start = {name: p.detach().clone() for name, p in trainable_parameters(policy).items()}
    samples, budgets = on_policy(policy, GROUPS), []
    training_mode(policy)
    shrink = MemoryBudget.shrink
    monkeypatch.setattr(
        MemoryBudget, "shrink", lambda budget, failed: budgets.append(budget) or shrink(budget, failed)
    )
    scarce(12)
    late = gradient_of(policy, GRPO, samples, fits=24)
    policy.load_state_dict(start, strict=False)
    straight = gradient_of(policy, GRPO, samples, fits=budgets[-1].fits)
    assert len(budgets) == len(set(map(id, budgets))) == 1, "the second time nothing ran out"
    for name, gradient in straight.items():
        assert torch.equal(gradient, late[name]), name


@pytest.mark.integration
def test_a_step_above_its_budget_is_reported_once(mini, tmp_path, monkeypatch):
    monkeypatch.setattr(truing.trainer.step_record, "peak_bytes", lambda device: 9 * 10**9)
    table = mini(optimizer={"memory": "8GB"})
    run = truing.train(table, out=tmp_path / "run").run
    payloads = [each.payload for each in RunReader(run).events() if each.payload.get("what") == "budget"]
    assert len(payloads) == 1
    assert "used up to 9.00 GB" in payloads[0]["text"]


@pytest.mark.integration
def test_a_run_reports_its_memory_and_resumes_with_it(mini, tmp_path, monkeypatch):
    def stop(kind, facts):
        if kind == "checkpoint":
            raise KeyboardInterrupt

    table = mini(checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt):
        truing.train(table, out=tmp_path / "run", on_event=stop)
    payloads = [event.payload for event in RunReader(tmp_path / "run").events() if event.kind == "memory"]
    assert len(payloads) == 1
    assert asdict(MemoryBudget.from_facts(json.loads(json.dumps(payloads[0])))) == payloads[0]
    monkeypatch.setattr(truing.trainer.run, "measure_budget", None)  # a run that goes on measures nothing
    result = truing.train(table, out=tmp_path / "run", resume=True)
    after = [event.payload for event in RunReader(result.run).events() if event.kind == "memory"]
    assert after == payloads * 2
    metrics = RunReader(result.run).steps()[0].metrics
    assert 0 < metrics["memory/predicted"] < 100
    assert 0 < metrics["memory/peak"] < 100
