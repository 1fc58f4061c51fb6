"""Writes dumps with miles' code: `python -m dev.dumps.miles CHECKOUT tests/data/dumps/miles`.

Rewards, the split over two ranks and the files are computed by functions of the checkout. Forwards are the
demo's, and advantages are the normalized rewards, as with GRPO.
"""

from types import SimpleNamespace
from typing import Any

import torch

from dev.dumps.batches import batches, from_command_line
from dev.dumps.slime import ARGS, responses, samples

COLUMNS = {"log_probs": "old_logprob", "ref_log_probs": "ref_logprob"}


def main() -> None:
    """Write the steps."""
    _, out = from_command_line("ray", "miles.backends.training_utils.parallel", "miles.utils.object_store")
    from miles.ray.rollout import train_data_conversion as conversion  # pyright: ignore
    from miles.utils.train_dump_utils import save_debug_train_data_for_rank  # pyright: ignore
    from miles.utils.types import Sample  # pyright: ignore

    template = str(out / "{rollout_id}_{rank}.pt")
    more = {"save_debug_train_data": template, "qkv_format": "thd", "use_dynamic_global_batch_size": False}
    args = SimpleNamespace(**ARGS, **more)
    for number, step in enumerate(batches()):
        data = conversion.convert_samples_to_train_data(args, list(samples(step, Sample)), {}, None, None)
        for rank, shard in enumerate(conversion.split_train_data_by_dp_raw(args, data, dp_size=2)):
            rows = list(shard["partition"])
            shard = conversion.process_rollout_data_shard(args, shard)
            for name, ours in COLUMNS.items():
                shard[name] = [list(responses(step, ours))[row] for row in rows]
            _as_tensors(shard)
            save_debug_train_data_for_rank(args, rollout_id=number, rollout_data=shard, rank=rank)


def _as_tensors(shard: dict[str, Any]) -> None:
    """Do what the actor does to its rows, and what GRPO makes of rewards."""
    shard["tokens"] = [torch.tensor(row) for row in shard["tokens"]]
    shard["loss_masks"] = [torch.tensor(row, dtype=torch.int32) for row in shard["loss_masks"]]
    shard["rollout_log_probs"] = [torch.tensor(row) for row in shard["rollout_log_probs"]]
    pairs = zip(shard["rewards"], shard["response_lengths"], strict=True)
    shard["advantages"] = [torch.full((length,), reward) for reward, length in pairs]


if __name__ == "__main__":
    main()
