"""One rank's server takes no weights after its first sleep."""

from dataclasses import replace

from dev.faults.planted.vllm_not_synced_after_sleep import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-vllm-not-synced-after-sleep",
    what="one rank's vLLM server takes no weights after its first sleep",
    changes={**ON_ALL_RANKS.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
