"""One rank's server leaves out a layer of each adapter."""

from dataclasses import replace

from dev.faults.planted.vllm_layer_left_out import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-vllm-layer-left-out",
    what="one rank's vLLM server leaves out one layer of each adapter",
    changes={**ON_ALL_RANKS.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
