"""Micro-batches within a budget, and what happens where memory runs out all the same."""

import json
from dataclasses import asdict

import pytest
import torch
from samples import sample
from test_step import GROUPS, GRPO, gradient_of, learner, on_policy

import truing
import truing.training.loop
import truing.training.step
from truing.errors import ModelError, RecipeError
from truing.memory import free, held, out_of_memory, peak, watch_peak
from truing.models.forward import MicroBatch
from truing.models.lora import add_lora, trainable_parameters
from truing.record import RunReader
from truing.training.room import LOGITS, Need, Room, measure

CPU = torch.device("cpu")
NEED = Need(fixed=1000, per_token=10, per_token_recomputed=2)


def of_lengths(*lengths):
    return [sample([5 + i], list(range(9, 8 + n)), name=f"s{i}", group="x") for i, n in enumerate(lengths)]


def test_what_fits_by_hand():
    room = Room.within(NEED, budget=1205, most=64)
    assert (room.fits, room.fits_recomputed) == (20, 102)
    assert NEED.peak(MicroBatch([], 7)) == 1070
    assert NEED.peak(MicroBatch([], 7, recompute=True)) == 1014
    assert Room.within(Need(1000, 10), budget=1205, most=64).fits_recomputed == 0
    with pytest.raises(RecipeError, match="memory is less than a step holds"):
        Room.within(NEED, budget=1009, most=64)


def test_samples_that_do_not_fit_are_computed_twice(tiny):
    samples = of_lengths(6, 30, 8, 9)
    room = Room(NEED, most=64, fits=16, fits_recomputed=100)
    found = [
        ([s.sample_id for s in micro.samples], micro.recompute)
        for micro in room.micro_batches(tiny.model, samples)
    ]
    assert sorted(name for names, _ in found for name in names) == ["s0", "s1", "s2", "s3"]
    assert [(names, again) for names, again in found if again] == [(["s1"], True)]
    # where layers cannot be computed twice, it is tried alone
    alone = list(Room(NEED, most=64, fits=16).micro_batches(tiny.model, samples))
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
    tried, score = [], truing.training.step.score

    def arm(limit, *, twice=10**9, late=False):
        def failing(model, batch, wanted, *, recompute):
            tokens = sum(len(each) for each in batch.samples)
            tried.append((tokens, recompute))
            scores = score(model, batch, wanted, recompute=recompute)
            if tokens > (twice if recompute else limit):
                if not late:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                scores.logprob.register_hook(lambda _: (_ for _ in ()).throw(MemoryError("late")))
            return scores

        monkeypatch.setattr(truing.training.step, "score", failing)
        return tried

    return arm


@pytest.mark.parametrize("late", [False, True])
def test_where_memory_runs_out_the_step_begins_anew_in_smaller_parts(tiny, scarce, late):
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
    made = learner(tiny.model, GRPO, fits_recomputed=1000)
    tried = scarce(3)
    truing.training.step.train_step(made, rows, (0, "test", 0))
    assert tried[0] == (sum(map(len, rows)), False)
    assert tried[-1] == (sum(map(len, rows)), True)
    assert made.room.fits < min(map(len, rows))
    scarce(3, twice=3)
    with pytest.raises(ModelError, match="no memory to train on sample"):
        truing.training.step.train_step(made, rows, (0, "test", 1))


def test_another_error_is_no_lack_of_memory(tiny, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(truing.training.step, "score", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        truing.training.step.train_step(learner(tiny.model, GRPO), GROUPS, (0, "test", 0))
    assert out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))


def test_need_is_measured_on_the_policy(tiny):
    whole = measure(tiny.model, trainable_parameters(tiny.model), now=7)
    assert whole.per_token_recomputed < whole.per_token
    trained = sum(p.nbytes for p in trainable_parameters(tiny.model).values())
    assert whole.fixed == 7 + 3 * trained + LOGITS
    policy = add_lora(tiny.model, rank=2, alpha=4.0, dropout=0.0, targets="all-linear", seed=0)
    assert measure(policy, trainable_parameters(policy), now=7).fixed < whole.fixed


def test_memory_of_this_process():
    watch_peak(CPU)
    before = held(CPU)
    assert 0 < before < 10**11
    assert free(CPU) > 0
    tensor = torch.ones(50_000_000)
    assert peak(CPU) >= before + tensor.nbytes * 0.9
    del tensor
    before = held(CPU)
    watch_peak(CPU)
    assert peak(CPU) < before + 200_000_000 * 0.9


def test_too_little_memory_is_told_before_anything_is_written(mini, tmp_path):
    with pytest.raises(RecipeError, match="memory is less than a step holds"):
        truing.train(mini(optimizer={"memory": "0.01GB"}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_tells_its_memory_and_resumes_with_it(mini, tmp_path, monkeypatch):
    def stop(kind, facts):
        if kind == "checkpoint":
            raise KeyboardInterrupt

    table = mini(checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt):
        truing.train(table, out=tmp_path / "run", watch=stop)
    told = [event.payload for event in RunReader(tmp_path / "run").events() if event.kind == "memory"]
    opened = []

    def other(*_):
        opened.append(Room(Need(0, 1), most=10**6, fits=10**6))
        return opened[-1]

    monkeypatch.setattr(truing.training.loop, "open_room", other)  # once to see that there is room
    result = truing.train(table, out=tmp_path / "run", resume=True)
    after = [event.payload for event in RunReader(result.run).events() if event.kind == "memory"]
    assert asdict(Room.of(json.loads(json.dumps(told[0])))) == {
        k: v for k, v in told[0].items() if k != "stage"
    }
    stages = len(table["stages"])
    assert len(opened) == stages, "the first to see that there is room; the stage that went on opened none"
    assert len(after) == stages
    metrics = RunReader(result.run).steps()[0].metrics
    assert 0 < metrics["memory/predicted"] < 100
    assert 0 < metrics["memory/peak"] < 100
