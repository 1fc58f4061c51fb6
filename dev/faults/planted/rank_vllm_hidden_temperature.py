"""One rank's server samples at a temperature that its log-probabilities do not include."""

from dataclasses import replace

from dev.faults.planted.vllm_hidden_temperature import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-vllm-hidden-temperature",
    what="one rank's vLLM server samples at temperature 1.3 and returns log-probabilities of 1",
    changes={**ON_ALL_RANKS.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
