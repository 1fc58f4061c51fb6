"""Ratios and bounds, checked by hand."""

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from samples import sample
from transformers import AutoModelForCausalLM, LlamaConfig
from typer.testing import CliRunner

from dev.measure import compare as compare_module
from dev.measure import generation, random_models, scaling, trl_side, truing_side
from dev.measure import roofline as limit_module
from dev.measure.cases import CASES, REPLY, Case, even_share
from dev.measure.compare import BenchError, compare, run_side
from dev.measure.doctor_cost import cost_of
from dev.measure.roofline import MachineRates, WeightCounts, count_weights, lower_bounds, measure_roofline
from truing.cli import app
from truing.measurements.audit_schedule import BUDGET_SHARES, GROUPS
from truing.models.tiny import byte_tokenizer
from truing.types.step_table import StepNumbers, table_of_samples
from truing.types.token import Origin

SMALL = Case("small", "", prompts=2, group_size=4, new_tokens=11, lora=False)


def test_ratios_are_of_medians_and_above_one_where_truing_is_better(monkeypatch):
    turns = iter([(1.0, 6.0), (3.0, 2.0), (2.0, 5.0)])
    taken = {}

    def side(name, case, steps):
        taken.setdefault(name, []).append((case, steps))
        if name == "truing":
            taken["now"] = next(turns)
        return {"step": taken["now"][name == "trl"], "threads": 2}

    monkeypatch.setattr(compare_module, "run_side", side)
    comparison = compare(SMALL, pairs=3, steps=2)
    assert comparison["ratio_step"] == 2.5  # medians 2 and 5
    assert comparison["truing"] == {"step": 2.0, "threads": 2}
    assert "ratio_threads" not in comparison
    assert taken["trl"] == [(SMALL, 2)] * 3


@pytest.mark.slow
def test_a_side_that_fails_is_reported_with_its_output():
    unknown = Case("small", "", 1, 2, 3, lora=False, model="no-such-model")
    with pytest.raises(BenchError, match="no-such-model"):
        run_side("truing", unknown, 2)


def test_prompts_differ_and_answers_of_a_group_may():
    for case in CASES.values():
        assert len({messages[-1]["content"] for messages in case.conversations(9)}) == 9
    assert even_share([2, 5, 8]) == pytest.approx(2 / 3)
    assert even_share([]) == 0


def test_bounds_by_hand():
    """100 weights in the layers, 10 in the head, queries of 6; 1,000 operations and 440 bytes a second."""
    samples = [sample([1, 2, 3], [9, 5]), sample([1, 2, 3], [8, 5]), sample([1, 2, 4], [7, 5])]
    metrics = {"tokens/computed": 50.0, "tokens/scored": 20.0}
    record = table_of_samples(StepNumbers("grpo", 0, metrics), samples)
    weights, rates = WeightCounts(body=100, head=10, queries=6), MachineRates(gemm=1000.0, read=440.0)
    result = lower_bounds(SMALL, record, weights, rates)
    products = 2 * (100 * 50 + 10 * 20) / 1000
    attention = 50 * 4 * 6 * (1 + 2 + 3 + 4 + 4 + 3 + 4) / 7 / 1000  # the tree of 1 2 (3 (9, 8), 4 7)
    assert result == pytest.approx(
        {
            # the prompts' distinct tokens: 1 2 (3, 4)
            "prefill": (2 * (100 * 4 + 10 * 8) + 4 * 4 * 6 * (1 + 2 + 3 + 3) / 4) / 1000,
            "decode": 10 * max(4 * 110 / 440, 2 * 110 * 8 / 1000),
            "forward": products + attention,
            "backward": 2 * products + 2 * attention,
            "optimizer": 7 * 4 * 110 / 440,
        }
    )
    lora = Case("small", "", 2, 4, 11, lora=True)
    assert lower_bounds(lora, record, weights, rates)["backward"] == pytest.approx(products + 2 * attention)


def test_the_head_is_the_embedding(tmp_path):
    tensors = {"model.embed_tokens.weight": torch.zeros(5, 2), "model.norm.weight": torch.zeros(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    config = LlamaConfig(hidden_size=6, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=4)
    config.save_pretrained(tmp_path)
    assert count_weights(tmp_path) == WeightCounts(body=3, head=10, queries=4 * 6)


def test_shares_use_the_better_rate_around_a_step(monkeypatch, tmp_path):
    rates = [{"torch": 900.0, "oneDNN": 900.0, "read": 90.0}] * (len(GROUPS) - 1)  # of no step that counts
    rates += [
        {"torch": 100.0, "oneDNN": 300.0, "read": 8.0},
        {"torch": 200.0, "oneDNN": 250.0, "read": 9.0},
        {"torch": 200.0, "oneDNN": 350.0, "read": 9.0},
        {"torch": 200.0, "oneDNN": 150.0, "read": 9.0},
        {"torch": 900.0, "oneDNN": 900.0, "read": 90.0},
    ]
    monkeypatch.setattr(limit_module, "_machine_rates", lambda gpu: rates[len(given_up)])
    given_up, parts = [], {"prefill": 4.0, "decode": 2.0, "optimizer": 9.0, "record": 0.1}

    def step(forward, backward, whole, *kinds):
        seconds = parts | {"forward": forward, "backward": backward}
        record = SimpleNamespace(seconds=seconds, facts=audited(*kinds))
        return truing_side.TimedStep(whole, record)

    took = [(1.0, 1.0, 20.0), (2.0, 3.0, 30.0), (0.5, 0.5, 40.0)]
    steps = [step(50.0, 50.0, 90.0) for _ in GROUPS]
    steps += [*(step(*each) for each in took), step(50.0, 50.0, 90.0, "rows")]

    def run(case, count, between):
        for step in steps[:count]:
            between()
            given_up.append(step)
        return given_up

    least = {"prefill": 1.0, "decode": 1.0, "forward": 0.5, "backward": 0.4, "optimizer": 3.0}
    given = []
    monkeypatch.setattr(limit_module, "run_case", run)
    monkeypatch.setattr(limit_module, "lower_bounds", lambda *args: given.append(args[3]) or least)
    monkeypatch.setattr(limit_module, "count_weights", lambda folder: WeightCounts(1, 1, 1))
    result = measure_roofline(replace(SMALL, model=str(tmp_path)), steps=4)
    assert [rate.gemm for rate in given] == [300.0, 350.0, 350.0]
    assert {(rate.read, rate.weight) for rate in given} == {(9.0, 4)}
    assert result["step"] == 30.0
    assert result["parts"]["prefill"] == {"seconds": 4.0, "bound": 1.0, "share": 0.25}
    assert result["share_forward_backward"]["oneDNN"] == pytest.approx(0.45)
    assert result["share_forward_backward"]["torch"] == pytest.approx(0.675)
    assert result["share_record"] == pytest.approx(0.1 / 30)
    assert (result["next"], result["steps"]) == ("optimizer", 3)


@pytest.mark.slow
def test_the_time_between_steps_counts_in_no_step():
    pauses = []
    taken = truing_side.run_case(
        replace(SMALL, model="tiny"), 3, between=lambda: pauses.append(time.sleep(2))
    )
    assert len(taken) == len(pauses) == 3
    assert min(step.seconds for step in taken[1:]) < 2  # one step alone: a busy machine may be slow


def audited(*kinds):
    return {"audit_cost": {"step": 100.0, **dict.fromkeys(kinds, 30.0)}}


def test_the_cost_of_the_doctor_is_a_share_of_steps():
    def step(doctor, other, *kinds):
        seconds = {"doctor": doctor, "forward": other}
        return truing_side.TimedStep(0.0, SimpleNamespace(seconds=seconds, facts=audited(*kinds)))

    result = cost_of([step(1.0, 1.0, "rows"), step(0.0, 2.0), step(0.5, 2.5, "audit")])
    assert (result.steps, result.looked_at, result.step_seconds) == (3, 2, 3.0)
    assert (result.first, result.later, result.whole) == (0.5, pytest.approx(0.1), pytest.approx(1.5 / 7))


def timed(seconds, *kinds):
    record = SimpleNamespace(
        seconds={"prefill": 0.1 * seconds, "decode": 0.2 * seconds}, facts=audited(*kinds)
    )
    return truing_side.TimedStep(seconds, record)


FIRST = [timed(90.0), *(timed(50.0, *names) for names in GROUPS[1:])]
"""The steps that begin the audits."""


@pytest.mark.parametrize("kind", BUDGET_SHARES)
def test_audited_steps_are_not_in_the_time_of_a_step(kind, monkeypatch):
    steps = [*FIRST, timed(9.0), timed(40.0, kind), timed(5.0), timed(6.0)]
    monkeypatch.setattr(truing_side, "run_case", lambda case, count: steps[:count])
    measured = truing_side.measure(SMALL, 4)
    assert measured == pytest.approx({"step": 6.0, "generate": 1.8, "train": 4.2})
    steps[len(FIRST)].record.facts["audit_cost"][kind] = 1.0  # too small to count
    assert truing_side.measure(SMALL, 4)["step"] == 6.0
    steps[len(FIRST)] = timed(9.0, kind)
    with pytest.raises(BenchError, match="measure more steps"):
        truing_side.measure(SMALL, 1)


def test_a_finding_ends_the_measurement(monkeypatch):
    def train(recipe, env, out, on_event):
        on_event("finding", {"verdict": "CANNOT TELL", "text": "a look"})
        on_event("finding", {"verdict": "SUSPECT", "text": "SUSPECT RAT002 first-ratio-not-one"})

    monkeypatch.setattr(truing_side, "train", train)
    with pytest.raises(BenchError, match="RAT002"):
        truing_side.run_case(replace(SMALL, model="tiny"), 2)


def test_trls_time_is_the_median_of_the_steps_after_the_first():
    times = [(0.0, 0.0), (50.0, 9.0), (60.0, 12.0), (90.0, 16.0), (110.0, 21.0)]
    assert trl_side.times_of(times) == {"step": 20.0, "generate": 4.0, "train": 16.0}


def test_generation_is_compared_by_medians_over_jobs_with_other_seeds(monkeypatch, tmp_path):
    rates = {"truing": iter([10, 30, 20]), "hf": iter([5, 5, 50]), "vllm": iter([40, 40, 1])}
    jobs = []

    def run(what, command, remedy):
        name = what.split()[1]
        jobs.append(json.loads(Path(command[-1]).read_text()))
        return {"tokens": next(rates[name]) * 2.0, "seconds": 2.0}

    monkeypatch.setattr(generation, "run_and_read_json", run)
    monkeypatch.setattr(generation, "MODEL", "tiny")
    comparison = generation.compare(rows=4, pairs=3, vllm=tmp_path / "python")
    assert (comparison["ratio_hf"], comparison["ratio_vllm"]) == (4.0, 0.5)
    assert comparison["truing"] == {"tokens_per_s": 20.0, "mean_length": 10.0}
    assert [job["seed"] for job in jobs] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len({len(ids) for ids in jobs[0]["prompts"]}) == 4, "ragged"


def test_both_samplers_of_generation_count_their_tokens(monkeypatch):
    monkeypatch.setattr(generation, "MODEL", "tiny")
    monkeypatch.setattr(generation, "MAX_NEW_TOKENS", 6)
    job = generation.generation_job(rows=3, seed=0)
    for side in (generation.measure_truing, generation.measure_transformers):
        assert side(job | {"stops": [258]})["tokens"] == 18
        assert side(job | {"stops": list(range(259))})["tokens"] == 3


def test_scale_changes_one_thing_at_a_time(monkeypatch, tmp_path):
    written = []
    monkeypatch.setattr(
        scaling, "_model_with_layers", lambda layers, folder: written.append(layers) or folder
    )
    fields = {
        "answers of a group": "group_size",
        "solved sums in the prompt": "sums",
        "environment replies": "replies",
        "layers of the model": "model",
    }
    base, *cases = scaling.scaling_cases(tmp_path)
    assert base == ("nothing", "", scaling.BASE)
    for changed, to, case in cases:
        field = fields[changed]
        assert replace(case, **{field: getattr(scaling.BASE, field)}) == scaling.BASE
        assert getattr(case, field) == (str(tmp_path / str(to)) if field == "model" else to)
    assert written == list(scaling.LAYERS)
    assert len({case for _, _, case in cases} - {scaling.BASE}) == 12


TALK = Case("talk", "", 2, 2, new_tokens=5, lora=True, system_sums=1, replies=2, model="tiny")


@pytest.mark.integration
def test_a_talk_has_its_turns_all_of_one_length_closed_by_a_stop_that_is_forced():
    samples = truing_side.run_case(TALK, 2)[-1].record.samples
    assert len(samples) == 4
    for each in samples:
        assert len(each.turns) == 3
        for turn in each.turns:
            drawn = slice(turn.start, turn.end)
            assert each.origin[drawn].tolist() == [Origin.SAMPLED] * 5 + [Origin.FORCED]
            assert each.policy_mask[drawn].tolist() == [True] * 5 + [False]
        text = bytes(i for i in each.token_ids.tolist() if i < 256).decode(errors="replace")
        assert text.count(REPLY) == 2


def test_a_model_of_a_shape_is_written_once_and_trains(monkeypatch, tmp_path):
    monkeypatch.setenv("TRUING_CACHE", str(tmp_path))
    weights = random_models.model_folder("toy") / "model.safetensors"
    written = weights.stat().st_mtime_ns
    assert AutoModelForCausalLM.from_pretrained(weights.parent).config.model_type == "qwen3"
    case = replace(CASES["gpu-0.6b"], model="toy", gpu=False, prompts=1, group_size=2, new_tokens=4, sums=1)
    assert len(truing_side.run_case(case, 2)[-1].record.samples) == 2
    assert weights.stat().st_mtime_ns == written


@pytest.mark.parametrize(("name", "tokens"), [("gpu-0.6b", 1000), ("gpu-0.6b-4k", 4000), ("gpu-4b", 1000)])
def test_prompts_of_a_case_for_a_gpu_have_the_tokens_that_it_says(name, tokens):
    ids = byte_tokenizer().apply_chat_template(CASES[name].conversations(1)[0], return_dict=False)
    assert len(ids) == pytest.approx(tokens, rel=0.05)


def test_trls_arguments_on_a_gpu(monkeypatch, tmp_path):
    made = {}
    monkeypatch.setattr(trl_side, "GRPOConfig", lambda **options: made.update(options))
    trl_side.grpo_config(replace(CASES["gpu-0.6b"], trl_rows=16, trl_recomputes=True), 2, str(tmp_path))
    assert (made["use_cpu"], made["bf16"], made["model_init_kwargs"]) == (False, True, {"dtype": "bfloat16"})
    assert (made["per_device_train_batch_size"], made["gradient_accumulation_steps"]) == (16, 8)
    assert made["gradient_checkpointing"]


def test_a_case_for_cuda_is_not_run_on_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for command in ("trl", "limit"):
        result = CliRunner().invoke(app, ["bench", command, "--case", "gpu-0.6b"])
        assert "needs CUDA" in str(result.exception)


@pytest.mark.parametrize("command", ["trl", "limit"])
def test_an_unknown_case_is_an_error(command):
    result = CliRunner().invoke(app, ["bench", command, "--case", "shrot"])
    assert "unknown case 'shrot'" in str(result.exception)


@pytest.mark.slow
def test_a_step_has_its_limits():
    result = CliRunner().invoke(app, ["bench", "limit", "--case", "short", "--json"])
    output = json.loads(result.stdout.splitlines()[-1])
    assert set(output["parts"]) == {"prefill", "decode", "forward", "backward", "optimizer"}
    assert all(0 < part["share"] < 1 for part in output["parts"].values())
