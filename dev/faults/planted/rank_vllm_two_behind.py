"""One rank's server computes with an adapter of two publications before."""

from dataclasses import replace

from dev.faults.planted.vllm_two_behind import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-vllm-two-behind",
    what="one rank's vLLM server computes with all weights of two publications before",
    changes={**ON_ALL_RANKS.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
