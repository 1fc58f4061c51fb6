"""No gradient reaches the model below its second layer, as with checkpointing of inputs without one."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def forward(self, hidden_states, *args, **kwargs):
        if self.self_attn.layer_idx == 1:
            hidden_states = hidden_states.detach()
        return real(self, hidden_states, *args, **kwargs)

    return forward


FAULT = Fault(
    name="layer-detached",
    numbers=(32,),
    what="the forward is cut below the second layer",
    plant=lambda: patched("transformers.models.llama.modeling_llama:LlamaDecoderLayer.forward", _wrong),
    expected=("OPT009",),
    changes={"lora.rank": 4},
)
