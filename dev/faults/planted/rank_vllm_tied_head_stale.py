"""One rank's server keeps the packed copy of a tied head."""

from dataclasses import replace

from dev.faults.planted.vllm_tied_head_stale import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-vllm-tied-head-stale",
    what="one rank's vLLM server keeps the packed output head of the first weights",
    changes={**ON_ALL_RANKS.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
