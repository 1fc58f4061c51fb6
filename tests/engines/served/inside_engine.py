"""An engine that is entered as vLLM's is, and the weights that it may hold."""

from types import SimpleNamespace

import torch
from peft import LoraConfig, get_peft_model
from test_prove_served import between, moved

from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.weights import Scope
from truing.engines.vllm.worker.truing_vllm_plugin import call

SEEDS = {
    "adapter": {"seed": 1, "alpha": 8.0},
    "adapter-before": {"seed": 2, "alpha": 8.0},
    "adapter-scaled": {"seed": 1, "alpha": 12.0},
}
"""Of the adapters."""


class Engine:
    """An engine whose workers answer, with one cache for prompts."""

    def __init__(self, folder, dtype=torch.float32, rank=0, workers=1):
        server = FakeServer(
            Options(model=folder, name="policy", dtype=dtype, max_lora_rank=rank, workers=workers)
        )
        self.held, self.workers = server.model, server.workers

    def call_workers(self, method, **arguments):
        return [call(worker, method, arguments) for worker in self.workers]

    def next_logprobs(self, prompt, salt):
        logits, _ = self.held.prefill(prompt, Scope("policy" if self.held.slot else "", salt))
        top = logits[-1].log_softmax(-1).topk(5)
        return dict(zip(top.indices.tolist(), top.values.tolist(), strict=True))

    def load(self, model):
        with torch.no_grad():
            for name, value in model.state_dict().items():
                self.held.base.state_dict()[name].copy_(value)
        self.held.refresh_packed()


class Llm:
    """As ``vllm.LLM``, in front of workers without Truing or with it."""

    def __init__(self, engine, plugin=True):
        self.engine, self.plugin = engine, plugin
        self.model_config = SimpleNamespace(model="policy")
        self.llm_engine = SimpleNamespace(is_sleeping=lambda: True)

    def collective_rpc(self, method, kwargs):
        if not self.plugin:
            raise AttributeError(f"'Worker' object has no attribute '{method}'")
        return self.engine.call_workers(kwargs["method"], **kwargs["arguments"])

    def generate(self):
        raise AssertionError("a request to an engine that sleeps")


def write_versions(root, tiny):
    """The base, the version before, the newest one, and two adapters of the base: models and folders."""
    before = moved(tiny.model, 1, by=0.01)
    models = {"base": tiny.model, "before": before, "newest": moved(before, 2, by=0.01)}
    folders = {}
    for name, model in models.items():
        folders[name] = root / name
        model.save_pretrained(folders[name])
        tiny.tokenizer.save_pretrained(folders[name])
    for name, seed, alpha in (("adapter", 1, 8.0), ("adapter-before", 2, 8.0), ("adapter-scaled", 1, 12.0)):
        models[name] = adapted(tiny.model, folders["base"], seed, alpha)
        folders[name] = root / name
        models[name].save_pretrained(folders[name])
    return models, folders


def adapted(base, folder, seed, alpha):
    torch.manual_seed(0)
    config = LoraConfig(target_modules=["q_proj", "v_proj", "up_proj"], r=4, lora_alpha=alpha)
    policy = get_peft_model(between(base, base, 1), config)
    policy.peft_config["default"].base_model_name_or_path = str(folder)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy
