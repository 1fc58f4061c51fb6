"""A stand-in for TRL's vLLM: samples from weights and in a precision of its own, a row at a time."""

import copy
from types import SimpleNamespace

import torch
from peft import PeftModel


class FakeVllm:
    """Replaces ``VLLMGeneration``; ``dtype`` is that of its weights."""

    dtype = torch.float32

    def __init__(self, model, processing_class, mode, temperature, max_completion_length, **_):
        self.trained, self.stop = model, processing_class.eos_token_id
        self.temperature, self.limit = temperature, max_completion_length
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        self.own = type(base)(copy.deepcopy(base.config)).to(self.dtype).eval()
        FakeVllm.sync_weights(self)
        config = SimpleNamespace(dtype=self.dtype, quantization=None)
        if mode == "colocate":
            self.llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
        else:
            info = {"model_config": {"logprobs_mode": "processed_logprobs"}}
            self.vllm_client = SimpleNamespace(get_server_info=lambda: info)
        self.chance = torch.Generator().manual_seed(0)

    def sync_weights(self):
        """Load the weights; an adapter is merged into its base and taken out again, as TRL does."""
        model = self.trained
        if not isinstance(model, PeftModel):
            self.own.load_state_dict(model.state_dict())
            return
        model.merge_adapter()
        names = {
            name: name.removeprefix("base_model.model.").replace(".base_layer", "")
            for name in model.state_dict()
            if model.prefix not in name
        }
        self.own.load_state_dict({names[name]: model.state_dict()[name] for name in names})
        model.unmerge_adapter()

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
