"""Prompts, parameters and stops in a vLLM server."""

from dev.faults.fake_vllm.weights import BLOCK
from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM, VLLM_LORA


def _vllm_cached_prompt_shifted(real):
    seen = set()

    def prefill(self, ids, scope, *, cached=True):
        first = (*scope, *ids[:BLOCK])
        is_held = cached and len(ids) > BLOCK and first in seen
        if cached:
            seen.add(first)
        return real(self, ids[1:], scope, cached=False) if is_held else real(self, ids, scope, cached=cached)

    return prefill


VLLM_CACHED_PROMPT_SHIFTED = Fault(
    name="vllm-cached-prompt-shifted",
    numbers=(107,),
    what="vLLM computes with another context after a prompt that its prefix cache holds",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.prefill", _vllm_cached_prompt_shifted),
    expected=("SMP011", "SMP004"),
    changes=VLLM_LORA,
    refusal="its prefix cache holds other keys and values",
)


OWN_vllm_generation_config = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
"""What the server takes from a file of its own."""


def _vllm_generation_config(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | OWN_vllm_generation_config)


VLLM_GENERATION_CONFIG = Fault(
    name="vllm-generation-config",
    numbers=(80,),
    what="vLLM samples with its own temperature, top-k and top-p",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _vllm_generation_config),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


def _vllm_greedy(real):
    return lambda processed, params, generator: int(processed.argmax())


VLLM_GREEDY = Fault(
    name="vllm-greedy",
    numbers=(18,),
    what="vLLM decodes greedily and returns log-probabilities of temperature 1",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:draw", _vllm_greedy),
    expected=("SMP011", "SMP009"),
    changes=VLLM_LORA,
    refusal="each id is the likeliest one, as in greedy decoding",
)


def _vllm_hidden_temperature(real):
    return lambda processed, params, generator: real(processed / 1.3, params, generator)


VLLM_HIDDEN_TEMPERATURE = Fault(
    name="vllm-hidden-temperature",
    numbers=(18,),
    what="vLLM samples at temperature 1.3 and returns log-probabilities of 1",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:draw", _vllm_hidden_temperature),
    expected=("SMP009", "SMP007"),
    changes={
        **VLLM,
        "sft.steps": 25,
        "grpo.steps": 14,
        "grpo.learning_rate": 1e-5,
        "sampling.max_new_tokens": 12,
    },
)


def _vllm_hidden_temperature_lora(real):
    return lambda processed, params, generator: real(processed / 1.3, params, generator)


VLLM_HIDDEN_TEMPERATURE_LORA = Fault(
    name="vllm-hidden-temperature-lora",
    numbers=(18,),
    what="vLLM samples a nearly uniform policy at temperature 1.3 and returns log-probabilities of 1",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:draw", _vllm_hidden_temperature_lora),
    expected=("SMP009",),
    changes={**VLLM_LORA, "sampling.max_new_tokens": 12},
)


OWN_PRESENCE = {"presence_penalty": 0.45}
"""What the server takes from a file of its own."""


def _vllm_own_presence_penalty(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | OWN_PRESENCE)


VLLM_OWN_PRESENCE_PENALTY = Fault(
    name="vllm-own-presence-penalty",
    numbers=(80,),
    what="vLLM applies a presence penalty of its own",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _vllm_own_presence_penalty),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are those of presence",
)


def _vllm_own_repetition_penalty(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | {"repetition_penalty": 1.1})


VLLM_OWN_REPETITION_PENALTY = Fault(
    name="vllm-own-repetition-penalty",
    numbers=(80,),
    what="vLLM applies a repetition penalty of its own",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _vllm_own_repetition_penalty),
    expected=("SMP011", "SMP004"),
    changes=VLLM_LORA,
    refusal="they are those of repetition penalty 1.1, which counts the prompt",
)


def _vllm_own_temperature(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | {"temperature": 0.65})


VLLM_OWN_TEMPERATURE = Fault(
    name="vllm-own-temperature",
    numbers=(80,),
    what="vLLM samples at a temperature of its own",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _vllm_own_temperature),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are those of temperature 0.65",
)


def _vllm_prefix_cache_stale(real):
    return lambda self: None


VLLM_PREFIX_CACHE_STALE = Fault(
    name="vllm-prefix-cache-stale",
    numbers=(75,),
    what="vLLM keeps keys and values of old weights",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.drop_prefixes", _vllm_prefix_cache_stale),
    expected=("SMP011",),
    changes=VLLM,
    refusal="its prefix cache holds other keys and values",
    seen=("SkyRL#1431",),
)


def _vllm_prompt_without_last_id(real):
    def sample(self, ids, scope, params):
        scores = params["prompt_logprobs"] is not None
        return real(self, ids if scores else ids[:-1], scope, params)

    return sample


VLLM_PROMPT_WITHOUT_LAST_ID = Fault(
    name="vllm-prompt-without-last-id",
    numbers=(87,),
    what="vLLM reads prompts without their last id",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _vllm_prompt_without_last_id),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


LIMIT = 300
"""Tokens of a prompt that are read."""


def _vllm_prompts_cut(real):
    def prefill(self, ids, scope, **options):
        return real(self, ids[-LIMIT:], scope, **options)

    return prefill


VLLM_PROMPTS_CUT = Fault(
    name="vllm-prompts-cut",
    numbers=(87,),
    what="vLLM cuts prompts on the left to 300 tokens",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.prefill", _vllm_prompts_cut),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine's log-probabilities are not those of the ",
)


def _vllm_seed_ignored(real):
    def sample(self, ids, scope, params):
        return real(self, ids, scope, params | {"seed": 0})

    return sample


VLLM_SEED_IGNORED = Fault(
    name="vllm-seed-ignored",
    numbers=(64,),
    what="vLLM samples every answer with the same random numbers",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _vllm_seed_ignored),
    expected=("SMP008", "SMP011"),
    changes=VLLM_LORA,
    refusal="the engine gives equal answers to equal prompts, although their seeds differ",
)


def _vllm_stop_left_out(real):
    def answer(turn, request, scored):
        found = real(turn, request, scored)
        choice = found["choices"][0]
        if turn.finish_reason == "stop" and len(turn.ids) > 1:
            choice["token_ids"].pop()
            choice["logprobs"]["content"].pop()
        return found

    return answer


VLLM_STOP_LEFT_OUT = Fault(
    name="vllm-stop-left-out",
    numbers=(108,),
    what="vLLM leaves the stop id out of its answers",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _vllm_stop_left_out),
    expected=("LEN005",),
    changes={**VLLM_LORA, "sft.steps": 20, "sft.learning_rate": 1e-2, "sampling.max_new_tokens": 12},
    refusal="it leaves out the stop id that ended it",
    seen=("verl#2727",),
)


def _vllm_undeclared_stop(real):
    return lambda token, params: token < 200


VLLM_UNDECLARED_STOP = Fault(
    name="vllm-undeclared-stop",
    numbers=(82,),
    what="vLLM ends turns at ids that nobody declared",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:is_stop", _vllm_undeclared_stop),
    expected=("LEN005",),
    changes=VLLM_LORA,
    refusal="it stops at an id that nobody declared",
)
