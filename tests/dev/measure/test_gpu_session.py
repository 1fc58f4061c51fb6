"""dev/measure/gpu_session.py: what is kept between calls, failures of parts, and the figures it prints."""

import copy
import json
import sys
import threading

import pytest
import torch
from folders import ROOT
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from dev.measure import gpu_session
from dev.measure.cases import CASES
from dev.measure.compare import BenchError
from dev.measure.gpu import gpu_costs, gpu_figures
from dev.measure.gpu.gpu_results import PartError, Results, run_parts
from dev.measure.random_models import SHAPES

PARTS = ["a", "b", "c"]
MACHINE = {"toy": True, "device": "a card", "command": "x", "versions": {}}


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path / "results.json")
    made.begin_session(MACHINE)
    return made


class Clock:
    """Each part takes ten seconds."""

    now = 0.0

    def __call__(self):
        return self.now


def run(results, seconds=100.0, failing=(), parts=PARTS):
    """Run the parts; return those that ran, with the seconds that each was given."""
    clock, ran = Clock(), []

    def part(name, left):
        ran.append((name, left))
        clock.now += 10.0
        if name in failing:
            raise PartError(f"{name} broke")
        return {"value": name}

    run_parts(results, parts, lambda part: True, part, clock, seconds)
    return ran


def test_a_second_call_goes_on_where_the_first_ended(results):
    assert run(results, seconds=15.0) == [("a", 15.0), ("b", 5.0)]
    content = json.loads(results.path.read_text())
    assert {name: part["state"] for name, part in content["parts"].items()} == {"a": "done", "b": "done"}
    assert content["parts"]["a"]["result"] == {"value": "a"}
    assert content["parts"]["a"]["seconds"] == 10.0
    results.begin_session(MACHINE)
    assert [name for name, _ in run(results)] == ["c"]
    content = json.loads(results.path.read_text())
    assert [content["parts"][name]["session"] for name in PARTS] == [0, 0, 1]
    assert run(results) == []


def test_a_part_that_fails_is_on_record_and_comes_last_the_next_time(results):
    assert [name for name, _ in run(results, failing=["a"], parts=PARTS[:2])] == ["a", "b"]
    failed = results.read()["parts"]["a"]
    assert (failed["state"], failed["error"], results.of("a")) == ("failed", "a broke", None)
    assert [name for name, _ in run(results)] == ["c", "a"]
    assert results.of("a") == {"value": "a"}


def test_a_part_during_which_the_machine_was_taken_away_comes_last(results):
    def part(name, left):
        assert results.read()["parts"][name]["state"] == "running"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_parts(results, PARTS, lambda part: True, part, Clock(), 100.0)
    assert [name for name, _ in run(results)] == ["b", "c", "a"]


def test_parts_without_timing_run_at_once_and_before_the_others(results):
    running, seen = set(), {}
    both = threading.Barrier(2, timeout=60)

    def part(name, left):
        running.add(name)
        if name != "b":
            both.wait()
        seen[name] = set(running)
        if name != "b":
            both.wait()
        running.remove(name)
        return {}

    run_parts(results, PARTS, lambda name: name == "b", part, Clock(), 100.0)
    assert seen == {"a": {"a", "c"}, "c": {"a", "c"}, "b": {"b"}}


@pytest.mark.parametrize("change", [{"toy": False}, {"device": "another card"}])
def test_one_file_has_the_results_of_one_machine(results, change):
    with pytest.raises(BenchError, match="of another machine") as error:
        results.begin_session(MACHINE | change)
    assert error.value.got == {"toy": True, "device": "a card"} | change


def test_a_file_says_which_machine_command_and_versions_it_is_of(tmp_path):
    results = Results(tmp_path / "results.json")
    results.begin_session(gpu_session.machine(toy=True))
    (session,) = json.loads(results.path.read_text())["sessions"]
    assert session.keys() >= {"at", "command", "device", "threads", "toy"}
    assert session["versions"].keys() == set(gpu_session.LIBRARIES)


def test_every_part_fills_a_row_and_every_row_has_parts():
    named = [part for figure in gpu_figures.FIGURES for part in figure.parts]
    assert set(named) == gpu_session.parts(toy=True, device="cpu").keys()


def test_rows_are_those_of_the_page_and_an_aim_is_no_result(results):
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for figure in gpu_figures.FIGURES:
        assert f"| {figure.row} | {figure.aim} |".replace("|  |", "| |") in text
    assert all("measured" in line for line in list(gpu_figures.lines(results))[2:])
    assert "not measured (speed.4k.truing, speed.4k.trl); aim ≥ 4" in "\n".join(gpu_figures.lines(results))


def test_values_are_read_from_the_parts(results):
    for part, result in {
        "correctness.graphs": {"all_agree": False},
        "speed.4k.truing": {"step": 2.0, "peak_memory": 20.0},
        "speed.4k.trl": {"step": 9.0, "peak_memory": 50.0},
        "speed.4b": {
            **{"peak": 30.0, "predicted": 40.0, "held": 8.8, "by_shapes": 8.0},
            **{"doctor": 0.01, "record": 0.005, "publication": 0.002, "share_of_products": 0.6},
        },
    }.items():
        results.set(part, "done", result=result)
    lines = list(gpu_figures.lines(results))
    assert lines[1] == "toy sizes: none of these is a figure of a GPU"
    for line in (
        "captured and plain steps agree: measured no; aim yes",
        "held by a LoRA run at 4B ÷ predicted by shapes: measured 1.1",
        "peak of a LoRA run at 4B ÷ predicted: measured 0.75",
        "step at prompts of 4k, TRL ÷ Truing: measured 4.5; aim ≥ 4",
        "peak memory at prompts of 4k, Truing ÷ TRL: measured 0.4; aim ≤ 0.5",
        "MFU of the learner at 4B: not known for this card; aim ≥ 0.45",
        "doctor and record, share of a step at 4B: measured 0.015; aim ≤ 0.02",
    ):
        assert f"  {line}" in lines


def test_a_part_is_a_process_whose_error_or_time_limit_is_reported(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    monkeypatch.setattr(gpu_session, "__file__", str(script))
    script.write_text("import sys; print('noise'); print('{\"argv\": \"' + ' '.join(sys.argv[1:]) + '\"}')")
    assert gpu_session.run_part(True, "x", 60.0) == {"argv": "- --part x --toy"}
    script.write_text("raise ValueError('CUDA error')")
    with pytest.raises(PartError, match="CUDA error"):
        gpu_session.run_part(True, "x", 60.0)
    script.write_text("import sys, time; print('step 1 of 2', file=sys.stderr, flush=True); time.sleep(60)")
    with pytest.raises(PartError, match="not done in the 2 seconds that were left\nstep 1 of 2"):
        gpu_session.run_part(True, "x", 2.0)


def test_trl_runs_in_its_fastest_form_that_fits(monkeypatch):
    tried = []

    def side(name, case, steps):
        tried.append((case.trl_rows, case.trl_recomputes))
        if case.trl_rows > 32:
            raise BenchError("the trl side failed", got="CUDA out of memory")
        return {"step": 1.0}

    monkeypatch.setattr(gpu_costs, "run_side", side)
    monkeypatch.setattr(gpu_costs, "card_memory", lambda: 2 * 10**12)
    result = gpu_costs.speed_of_trl("gpu-0.6b-4k", toy=False)
    assert result == {"step": 1.0, "form": "32 rows", "out_of_memory": ["128 rows", "64 rows"]}
    assert tried == [(128, False), (64, False), (32, False)]
    monkeypatch.setattr(gpu_costs, "TRL_FORMS", ((64, False),))
    with pytest.raises(BenchError, match="no form of TRL's side fits"):
        gpu_costs.speed_of_trl("gpu-0.6b-4k", toy=False)


def test_forms_whose_activations_alone_fill_the_card_are_not_tried():
    """A row of 4,512 tokens saves at least 9.4 GB in the shape of 0.6B, one of 1,512 tokens 3.3 GB."""
    by_case = {name: gpu_costs.trl_forms(CASES[name], 80 * 10**9) for name in ("gpu-0.6b", "gpu-0.6b-4k")}
    assert by_case["gpu-0.6b"] == [(16, False), (8, False), (16, True)]
    assert by_case["gpu-0.6b-4k"] == [(8, False), (16, True)]


@pytest.mark.parametrize("sizes", [(64, 96, 4), (128, 96, 4), (64, 192, 4), (64, 96, 8)])
def test_bytes_that_a_layer_saves(sizes):
    """As counted by ``saved_tensors_hooks``; each head of queries and keys saves 4 bytes of its norm more."""
    width, inner, heads = sizes
    config = copy.deepcopy(SHAPES["toy"])
    config.hidden_size, config.intermediate_size, config.num_attention_heads = width, inner, heads
    more = [saved_bytes(config, layers, tokens=64) for layers in (1, 2)]
    counted = (more[1] - more[0]) / 64
    assert gpu_costs.saved_by_layer(config) <= counted <= 1.1 * gpu_costs.saved_by_layer(config)


def saved_bytes(config, layers, tokens):
    """Return the bytes that the layers of a model with peft's LoRA save, under autocast to bfloat16."""
    config.num_hidden_layers = layers
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    tuned = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    weights = {weight.untyped_storage().data_ptr() for weight in tuned.parameters()}
    saved = {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.zeros(1, tokens, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16),
    ):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    assert hidden.requires_grad
    return sum(tensor.untyped_storage().nbytes() for where, tensor in saved.items() if where not in weights)


def test_an_error_of_trl_that_is_no_lack_of_memory_is_raised(monkeypatch):
    def side(name, case, steps):
        raise BenchError("the trl side failed", got="no module named trl")

    monkeypatch.setattr(gpu_costs, "run_side", side)
    monkeypatch.setattr(gpu_costs, "card_memory", lambda: 10**12)
    with pytest.raises(BenchError, match="no module named trl"):
        gpu_costs.speed_of_trl("gpu-0.6b", toy=False)


@pytest.mark.parametrize("part", ["correctness.gradients", "correctness.sampler", "correctness.graphs"])
def test_correctness_holds_on_a_cpu(part):
    assert gpu_session.parts(toy=True, device="cpu")[part]()["all_agree"] is True


@pytest.mark.slow
def test_the_whole_script_runs_at_toy_sizes(tmp_path, monkeypatch, capsys):
    """Some two and a half minutes, mostly imports of its processes."""
    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["gpu_session.py", str(file), "--toy"])
    gpu_session.main()
    parts = json.loads(file.read_text())["parts"]
    assert {name: part.get("error", "done") for name, part in parts.items()} == dict.fromkeys(parts, "done")
    assert parts.keys() == gpu_session.parts(toy=True, device="cpu").keys()
    out = capsys.readouterr().out
    assert out.count(": measured ") == len(gpu_figures.FIGURES) - 1, "MFU has no peak on a CPU"
    assert "not measured" not in out
