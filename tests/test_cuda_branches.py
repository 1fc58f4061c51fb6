"""Branches for CUDA, reached without a GPU: a device that says cuda, functions that stand in for torch's.

``golden/cuda_branches.txt`` names for each file with such a branch a test that reaches it.
"""

import ast
import json
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from samples import sample
from virtual_cuda import virtual_cuda

from dev.measure import machine, side_process, truing_side
from dev.measure.cases import CASES
from truing.config import resolve
from truing.distributed import ranks
from truing.doctor.evidence import changed_step
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES, ref002
from truing.doctor.verdict import Verdict
from truing.engines import open_engine
from truing.engines.vllm.moe import begin_routes
from truing.engines.vllm.proof.prompts import long_prompt
from truing.engines.vllm.server_process import visible_gpus
from truing.engines.vllm.worker import truing_vllm_experts
from truing.lab.run import design
from truing.lab.run.run_pool import RunPool, slots_for
from truing.learner import memory_budget
from truing.measurements import draw_audit, draw_replay
from truing.models import forward_proof, lora
from truing.models.forward.autocast import autocast
from truing.models.forward.collate import collate
from truing.models.forward.float32_embedding import Float32SumEmbedding
from truing.models.forward.float32_head import Float32Head
from truing.models.forward.onednn_linear import onednn_computes
from truing.models.load import available_device
from truing.ops import logprobs
from truing.trainer import startup_notes, threads
from truing.trainer.run_context import clock_of
from truing.trl import GRPOConfig
from truing.trl.arguments import recipe as trl_recipe
from truing.utils import memory

ROOT = Path(__file__).parents[1]
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def on_cuda(tiny, monkeypatch):
    """A model that says that it is on CUDA."""
    monkeypatch.setattr(type(tiny.model), "device", CUDA)
    return tiny.model


def asks_for_a_device(source):
    """Whether code names CUDA, or compares with the CPU."""
    if "cuda" not in source and '"cpu"' not in source:
        return False  # parsing takes time
    for node in ast.walk(ast.parse(source)):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if any(isinstance(part, ast.Constant) and part.value == "cpu" for part in parts):
            return True
        if isinstance(node, ast.Constant) and node.value == "cuda":
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("cuda", "is_cuda"):
            return True
    return False


def test_each_file_that_asks_for_a_device_has_a_test_of_its_branch():
    asking = {
        str(path.relative_to(folder))
        for folder, kind in ((ROOT / "src/truing", "**/*.py"), (ROOT, "dev/**/*.py"))
        for path in folder.glob(kind)
        if asks_for_a_device(path.read_text(encoding="utf-8"))
    }
    _, *lines = (ROOT / "tests/golden/cuda_branches.txt").read_text().splitlines()
    tests = dict(line.split() for line in lines)
    assert asking == tests.keys()
    for test in tests.values():
        path, name = test.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_memory_is_the_devices(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name, value in {
        "empty_cache": None,
        "memory_allocated": 5,
        "memory_reserved": 6,
        "mem_get_info": (7, 9),
        "reset_peak_memory_stats": None,
        "max_memory_allocated": 8,
    }.items():

        def answer(*args, name=name, value=value):
            calls.append((name, *args))
            return value

        monkeypatch.setattr(torch.cuda, name, answer)
    memory.release_freed_memory()
    memory.reset_peak(CUDA)
    assert [each(CUDA) for each in (memory.bytes_in_use, memory.bytes_free, memory.peak_bytes)] == [5, 8, 8]
    assert [name for name, *_ in calls[:2]] == ["empty_cache", "reset_peak_memory_stats"]
    assert all(args == [CUDA] for _, *args in calls[1:])


def test_ranks_share_the_memory_of_a_cpu_but_not_of_gpus(on_cuda, monkeypatch):
    budgets = []
    monkeypatch.setattr(memory_budget, "bytes_in_use", lambda device: 100)
    monkeypatch.setattr(memory_budget, "bytes_free", lambda device: 1000)
    monkeypatch.setattr(memory_budget, "measure_need", lambda *args, **options: None)
    monkeypatch.setattr(
        memory_budget.MemoryBudget, "from_bytes", lambda need, limit, most: budgets.append(limit)
    )
    memory_budget.measure_budget(on_cuda, {}, None, 10, ranks=4)
    monkeypatch.setattr(type(on_cuda), "device", CPU)
    memory_budget.measure_budget(on_cuda, {}, None, 10, ranks=4)
    assert budgets == [850, 287]


def test_a_phase_ends_when_the_device_has_ended_its_work(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    for device, expected in ((CPU, False), (CUDA, True)):
        clock = clock_of(device)
        with clock.running(), clock.phase("forward"):
            pass
        assert bool(waits) == expected


def test_auto_is_cuda_if_there_is_one(monkeypatch):
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert available_device("auto") == device
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert available_device("cuda") == "cuda"


def test_a_model_in_float32_computes_in_bfloat16_on_cuda_alone(on_cuda, monkeypatch):
    contexts = []
    monkeypatch.setattr(torch, "autocast", lambda *args, enabled: contexts.append((*args, enabled)))
    autocast(on_cuda)
    autocast(on_cuda.bfloat16())
    monkeypatch.setattr(type(on_cuda), "device", CPU)
    autocast(on_cuda.float())
    assert contexts == [
        ("cuda", torch.bfloat16, True),
        ("cuda", torch.bfloat16, False),
        ("cpu", torch.bfloat16, False),
    ]


def test_the_output_head_multiplies_in_bfloat16_and_sums_in_float32():
    """On CUDA at once, and its backward pass multiplies in bfloat16."""
    torch.manual_seed(0)
    head = Float32Head(8, 16, bias=False, dtype=torch.bfloat16)
    states = torch.randn(3, 8, dtype=torch.bfloat16, requires_grad=True)
    head(states).square().sum().backward()
    with virtual_cuda():
        there, moved = Float32Head(8, 16, bias=False, dtype=torch.bfloat16), states.detach().cuda()
        there.load_state_dict(head.state_dict())
        logits = there.to("cuda")(moved.requires_grad_())
        logits.square().sum().backward()
        assert (logits.device.type, logits.dtype) == ("cuda", torch.float32)
        assert torch.equal(logits.cpu(), head(states))
    assert torch.allclose(moved.grad, states.grad, rtol=0.02, atol=0.02)
    assert torch.allclose(there.weight.grad, head.weight.grad, rtol=0.02, atol=0.02)


def test_products_that_only_a_cpu_needs_are_torchs_elsewhere():
    """The device without data stands for CUDA."""
    embedding = Float32SumEmbedding(10, 8, device="meta", dtype=torch.bfloat16)
    rows = embedding(torch.zeros(2, 3, device="meta", dtype=torch.long))
    assert type(rows.grad_fn).__name__ == "EmbeddingBackward0"
    for device, computes in (("meta", False), ("cpu", True)):
        assert onednn_computes(torch.ones(2, 8, device=device), torch.ones(4, 8, device=device)) == computes


def test_all_rows_are_scored_at_once_on_cuda(monkeypatch):
    """Block by block or at once the scores are the same; without data the blocks are counted."""
    torch.manual_seed(0)
    logits, ids = torch.randn(7, 11), torch.arange(7)
    found = []
    for rows in (2, 7):
        monkeypatch.setattr(logprobs, "CACHED_ROWS", rows)
        found.append(torch.stack(logprobs._scored(logits, ids)))
    assert torch.equal(*found)
    blocks, pick = [], logprobs._pick
    monkeypatch.setattr(logprobs, "_pick", lambda *args: blocks.append(len(args[1])) or pick(*args))
    logprobs._scored(logits, ids)
    monkeypatch.setattr(logprobs, "CACHED_ROWS", 2)
    logprobs._scored(logits.to("meta"), ids.to("meta"))
    assert blocks == [7, 7]


def test_an_adapter_forks_the_random_numbers_of_its_device(monkeypatch):
    forked = []
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: forked.append(devices) or nullcontext())
    for device in (CPU, CUDA):
        weight = SimpleNamespace(device=device)
        with lora._seeded(SimpleNamespace(parameters=lambda weight=weight: iter([weight])), 0):
            pass
    assert forked == [[], [CUDA]]


def test_two_forwards_may_differ_by_more_on_cuda(on_cuda, monkeypatch):
    monkeypatch.setattr(forward_proof, "device_and_precision", lambda model: "cuda")
    assert forward_proof.rounding_tolerance(on_cuda, []) == forward_proof.TOLERANCE["cuda"]


def test_a_server_on_cuda_is_asked_for_a_longer_prompt(on_cuda, monkeypatch):
    monkeypatch.setattr("truing.engines.vllm.proof.prompts.longest_supported", lambda causal: 10_000)
    assert len(long_prompt(on_cuda, 10_000)) == 4096
    monkeypatch.setattr(type(on_cuda), "device", CPU)
    assert len(long_prompt(on_cuda, 10_000)) == 512


def test_a_server_sees_the_gpu_of_its_rank(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert visible_gpus(CPU, 1) == {}
    assert visible_gpus(CUDA, 1) == {"CUDA_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert visible_gpus(CUDA, 1) == {"CUDA_VISIBLE_DEVICES": "6"}


def test_the_engine_of_a_recipe_with_graphs(on_cuda, mini, monkeypatch):
    made = {}
    monkeypatch.setattr(open_engine, "prove_sampler", lambda policy, engine: None)
    engine = SimpleNamespace(publish=lambda *weights: None)
    monkeypatch.setattr(open_engine, "LocalEngine", lambda model, **options: made.update(options) or engine)
    recipe = resolve(mini(model={"name": "tiny", "cuda_graphs": True}))
    open_engine.open_engine(recipe, SimpleNamespace(context_length=9), on_cuda)
    assert made == {"context_length": 9, "cuda_graphs": True}


def test_ranks_on_gpus_exchange_by_nccl(monkeypatch):
    groups, devices, meshes = [], [], []
    monkeypatch.setattr(ranks.dist, "is_initialized", lambda: False)
    monkeypatch.setattr(ranks.dist, "init_process_group", lambda backend, **options: groups.append(backend))
    monkeypatch.setattr(ranks.atexit, "register", lambda function: None)
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    monkeypatch.setattr(ranks, "init_device_mesh", lambda device, *args, **options: meshes.append(device))
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    for device in ("cuda", "cpu"):
        ranks.join(device, 9.0).with_mesh(device, 1)
    assert (groups, devices, meshes) == (["cpu:gloo,cuda:nccl", "gloo"], [1], ["cuda", "cpu"])


def test_a_lab_has_a_run_on_each_gpu(mini, monkeypatch, tmp_path):
    recipe = resolve(mini(model={"name": "tiny", "device": "auto"}))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a card")
    assert slots_for(recipe) == (3, True)
    assert RunPool(tmp_path, 3, cuda=True)._environment(2)["CUDA_VISIBLE_DEVICES"] == "2"
    assert ", a card, torch" in design.machine_kind.__wrapped__()


def test_the_rates_of_a_gpu(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    monkeypatch.setattr(machine, "GPU", ("cpu", torch.bfloat16, 64, 1000))
    assert machine.gemm_rates(gpu=True).keys() == {"torch"}
    assert machine.read_rate(gpu=True) > 0
    assert len(waits) == 2 * 2 * machine.REPEATS


def test_the_peak_of_a_side_on_a_gpu(monkeypatch, capsys):
    free = iter([60, 10, 50])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (next(free, 50) * 10**9, 80 * 10**9))
    side = SimpleNamespace(measure=lambda case, steps: {"step": steps})
    monkeypatch.setattr(side_process, "import_module", lambda name: side)
    peak = side_process.PeakGpuMemory()
    while peak.bytes < 70 * 10**9:
        pass
    assert peak.stop() == 70 * 10**9
    assert not peak.is_alive()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 80 * 10**9))
    case = json.dumps(asdict(replace(CASES["short"], gpu=True)))
    side_process.main("truing", case, "2")
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"step": 2, "peak_memory": 79.0, "threads": torch.get_num_threads()}


def test_a_case_for_a_gpu_as_a_recipe(monkeypatch, tmp_path):
    monkeypatch.setattr(truing_side, "model_folder", lambda model: tmp_path)
    recipe = truing_side.case_recipe(CASES["gpu-4b"], 2)
    assert recipe["model"] | {"name": ""} == {
        "name": "",
        "device": "cuda",
        "cuda_graphs": True,
        "dtype": "bfloat16",
    }
    resolve(recipe | {"env": {"name": "arithmetic"}})


def moved(fact, device):
    """A fact as measured on a device."""
    if not isinstance(fact, dict):
        return fact
    inner = {name: moved(each, device) for name, each in fact.items()}
    return inner | {"device": device} if {"device", "missed", "trainer"} & fact.keys() else inner


def verdicts(code, step):
    return [each.claim.verdict for each in examine(step, [RULES[code]])]


@pytest.mark.parametrize(
    "code", ["OPT006", "OPT009", "RAT008", "REF004", "SMP004", "SMP005", "SMP006", "SMP009", "SMP012"]
)
def test_float32_is_proof_on_cuda_as_on_a_cpu(code):
    example = RULES[code].example()
    for device in ("cpu", "cuda"):
        assert verdicts(code, changed_step(example, facts=moved(dict(example.facts), device))) == [
            Verdict.PROVEN
        ]


@pytest.mark.parametrize(
    ("device", "times", "verdict"),
    [("cpu", 30, Verdict.PROVEN), ("cuda", 30, Verdict.SUSPECT), ("cuda", 150, Verdict.PROVEN)],
)
def test_in_another_precision_cuda_needs_more_multiples_of_measured_rounding(device, times, verdict):
    device = f"{device}, torch.bfloat16"
    far, rounded = times * 0.02, {"rounding": 0.02}
    of_tokens = dict.fromkeys(("trainer", "sampler", "old", "reference"), 0.01) | rounded
    for code, stream in (("SMP004", "sampler"), ("SMP005", "trainer"), ("RAT008", "old")):
        example = RULES[code].example()
        values = of_tokens | {stream: far}
        plain = example.facts["plain"] | values | {"device": device, "mean": values, "median": values}
        assert verdicts(code, changed_step(example, facts={**example.facts, "plain": plain})) == [verdict]
    for code, fact in (("OPT006", "gradient"), ("OPT009", "row_gradients")):
        example = RULES[code].example()
        known = example.facts[fact] | {"device": device, "difference": far / 4, "rounding": 0.005}
        assert verdicts(code, changed_step(example, facts={**example.facts, fact: known})) == [verdict]


def test_draws_prove_nothing_where_the_trainer_differs_from_a_plain_forward():
    example = RULES["SMP009"].example()
    plain = RULES["SMP005"].example().facts["plain"]
    for trainer, verdict in ((plain["trainer"], Verdict.SUSPECT), (1e-6, Verdict.PROVEN)):
        facts = {**example.facts, "plain": plain | {"trainer": trainer}, "null": {"logprob": 1e-6}}
        assert verdicts("SMP009", changed_step(example, facts=facts)) == [verdict]


def test_a_path_is_cut_beyond_measured_rounding_alone():
    example = RULES["OPT009"].example()
    for device, verdict in (("cpu", Verdict.PROVEN), ("cuda", Verdict.SUSPECT)):
        cut = {"weight": "w", "moved": 3e-3, "silent": 1, "rounding": 1e-4}
        whole = {"device": f"{device}, torch.bfloat16", "cosine": 1.0, "difference": 2e-6, "rounding": 4e-3}
        known = example.facts["row_gradients"] | whole | {"missing_gradient": cut}
        assert verdicts("OPT009", changed_step(example, facts={"row_gradients": known})) == [verdict]


def test_differences_in_another_precision_are_no_bound_for_a_reference():
    example = RULES["REF002"].example()
    plain = {"trainer": 1e-6, "sampler": 1e-6}
    for device, known in (("cpu", True), ("cuda", True), ("cuda, torch.bfloat16", False)):
        step = changed_step(example, facts={**example.facts, "plain": plain | {"device": device}})
        assert (ref002.normal(step)[1] is not None) == known


def test_draws_are_replayed_in_float32_on_a_cpu_alone(tiny, mini, monkeypatch):
    """Elsewhere the probabilities are still tested, without the random numbers."""
    made = []

    class Replay(draw_audit.RaceReplay):
        def __init__(self, *args):
            made.append(1)
            super().__init__(*args)

    monkeypatch.setitem(draw_audit.REPLAYS, "race", Replay)
    row = sample([65, 66], [67, 68])
    stage = resolve(mini()).stage("grpo")
    learner = SimpleNamespace(model=tiny.model, setting=SimpleNamespace(stage=stage))
    for device, replays in (("cpu", True), ("cuda", False)):
        for module in (draw_replay, draw_audit):
            monkeypatch.setattr(module, "computed_precision", lambda model, device=device: device)
        made.clear()
        assert draw_audit.draw_audit_fact(learner, [row], (0,), "race")["tokens"] == 2
        assert bool(made) == replays
        assert (draw_replay.replay_mask(learner, [row], collate([row])) is not None) == replays


def test_a_server_on_cuda_returns_routes_itself_and_packs_no_experts(monkeypatch):
    assert not begin_routes(None, SimpleNamespace(experts=2, device="cuda"), lora_rank=8)
    packed = []
    kernel = SimpleNamespace(fused_experts=SimpleNamespace(process_weights_after_loading=packed.append))
    for device in (CPU, CUDA):
        layer = SimpleNamespace(
            quant_method=SimpleNamespace(moe_kernel=kernel), w13_weight=SimpleNamespace(device=device)
        )
        monkeypatch.setattr(truing_vllm_experts, "expert_layers", lambda model, layer=layer: [("a", layer)])
        assert truing_vllm_experts.pack_experts(None) == (["a"] if device is CPU else [])
    assert len(packed) == 1


def test_threads_are_left_alone_on_cuda(on_cuda, recipe, monkeypatch):
    asked = []
    monkeypatch.setattr(threads.torch, "set_num_threads", asked.append)
    threads.set_threads(recipe(), on_cuda, recorded=2, ranks=1)
    assert asked == []


def test_no_note_of_threads_on_cuda(on_cuda, recipe, monkeypatch):
    monkeypatch.setattr(startup_notes.torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(startup_notes, "usable_cores", lambda: 8)
    policy = SimpleNamespace(ranks=SimpleNamespace(size=1), module=on_cuda)
    session = SimpleNamespace(recipe=recipe(), policy=policy)
    session.recipe = session.recipe.model_copy(
        update={"model": session.recipe.model.model_copy(update={"threads": None})}
    )
    assert list(startup_notes._chosen_threads(session)) == []
    monkeypatch.setattr(type(on_cuda), "device", CPU)
    assert len(list(startup_notes._chosen_threads(session))) == 1


@pytest.mark.parametrize(("available", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_scripts_of_trl_compute_in_bfloat16_on_cuda(tmp_path, monkeypatch, available, dtype):
    monkeypatch.setattr(trl_recipe.torch.cuda, "is_available", lambda: available)
    assert trl_recipe.model_table(GRPOConfig(str(tmp_path)), problems=None)["dtype"] == dtype
