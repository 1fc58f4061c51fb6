"""The vLLM server of one of several ranks."""

from dataclasses import replace

from dev.faults.planted.vllm_adapters import VLLM_ADAPTER_NOT_DELIVERED
from dev.faults.planted.vllm_sampling import VLLM_HIDDEN_TEMPERATURE, VLLM_OWN_TEMPERATURE
from dev.faults.planted.vllm_weights import (
    VLLM_LAYER_LEFT_OUT,
    VLLM_NOT_SYNCED_AFTER_SLEEP,
    VLLM_TIED_HEAD_STALE,
    VLLM_TWO_BEHIND,
)

RANK_VLLM_ADAPTER_NOT_DELIVERED = replace(
    VLLM_ADAPTER_NOT_DELIVERED,
    name="rank-vllm-adapter-not-delivered",
    what="every publication to one rank's vLLM server ships zeros",
    changes={**VLLM_ADAPTER_NOT_DELIVERED.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_VLLM_HIDDEN_TEMPERATURE = replace(
    VLLM_HIDDEN_TEMPERATURE,
    name="rank-vllm-hidden-temperature",
    what="one rank's vLLM server samples at temperature 1.3 and returns log-probabilities of 1",
    changes={**VLLM_HIDDEN_TEMPERATURE.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_VLLM_LAYER_LEFT_OUT = replace(
    VLLM_LAYER_LEFT_OUT,
    name="rank-vllm-layer-left-out",
    what="one rank's vLLM server leaves out one layer of each adapter",
    changes={**VLLM_LAYER_LEFT_OUT.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_VLLM_NOT_SYNCED_AFTER_SLEEP = replace(
    VLLM_NOT_SYNCED_AFTER_SLEEP,
    name="rank-vllm-not-synced-after-sleep",
    what="one rank's vLLM server takes no weights after its first sleep",
    changes={**VLLM_NOT_SYNCED_AFTER_SLEEP.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_VLLM_OWN_TEMPERATURE = replace(
    VLLM_OWN_TEMPERATURE,
    name="rank-vllm-own-temperature",
    what="one rank's vLLM server samples at a temperature of its own",
    changes={**VLLM_OWN_TEMPERATURE.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_VLLM_TIED_HEAD_STALE = replace(
    VLLM_TIED_HEAD_STALE,
    name="rank-vllm-tied-head-stale",
    what="one rank's vLLM server keeps the packed output head of the first weights",
    changes={**VLLM_TIED_HEAD_STALE.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_VLLM_TWO_BEHIND = replace(
    VLLM_TWO_BEHIND,
    name="rank-vllm-two-behind",
    what="one rank's vLLM server computes with all weights of two publications before",
    changes={**VLLM_TWO_BEHIND.changes, "trainer.ranks": 2},
    on_ranks=(1,),
)
