"""A stand-in for TRL's vLLM: samples from weights and in a precision of its own, a row at a time."""

import copy
from types import SimpleNamespace

import torch


class FakeVllm:
    """Replaces ``VLLMGeneration``; ``dtype`` is that of its weights."""

    dtype = torch.float32

    def __init__(self, model, processing_class, mode, temperature, max_completion_length, **_):
        self.trained, self.stop = model, processing_class.eos_token_id
        self.temperature, self.limit = temperature, max_completion_length
        self.own = type(model)(copy.deepcopy(model.config)).to(self.dtype).eval()
        self.own.load_state_dict(model.state_dict())
        config = SimpleNamespace(dtype=self.dtype, quantization=None)
        if mode == "colocate":
            self.llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
        else:
            info = {"model_config": {"logprobs_mode": "processed_logprobs"}}
            self.vllm_client = SimpleNamespace(get_server_info=lambda: info)
        self.chance = torch.Generator().manual_seed(0)

    def sync_weights(self):
        self.own.load_state_dict(self.trained.state_dict())

    def generate(self, prompts, images, num_generations, profiler):
        rows = [self.sampled(ids) for ids in prompts]
        ids, logprobs = zip(*rows, strict=True)
        return prompts, list(ids), list(logprobs), None

    @torch.no_grad()
    def sampled(self, prompt):
        ids, logprobs = [], []
        while len(ids) < self.limit and self.stop not in ids:
            logits_V = self.own(torch.tensor([[*prompt, *ids]])).logits[0, -1].float()
            logprob_V = (logits_V / self.temperature).log_softmax(-1)
            drawn = int(logprob_V.exp().multinomial(1, generator=self.chance))
            ids.append(drawn)
            logprobs.append([float(logprob_V[drawn])])
        return ids, logprobs
