"""One rank's server gets the frozen base at every publication."""

from dataclasses import replace

from dev.faults.planted.vllm_adapter_not_delivered import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-vllm-adapter-not-delivered",
    what="every publication to one rank's vLLM server ships zeros",
    changes={**ON_ALL_RANKS.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
