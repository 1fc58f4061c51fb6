"""One rank's server samples at a temperature of its own."""

from dataclasses import replace

from dev.faults.planted.vllm_own_temperature import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-vllm-own-temperature",
    what="one rank's vLLM server samples at a temperature of its own",
    changes={**ON_ALL_RANKS.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
