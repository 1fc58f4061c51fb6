"""Seconds and memory of a checkpoint: while training waits, or in the background (``dcp.async_save``).

    torchrun --nproc-per-node 2 -m dev.measure.checkpoints FOLDER [--million 134]

Each rank has its shards of weights and of both moments of AdamW, in float32. While a checkpoint is written in
the background, the ranks multiply matrices, as training would; their number shows what the writing takes.
"""

import argparse
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.tensor import Shard, distribute_tensor

from truing.distributed.ranks import Ranks, join
from truing.distributed.shard_files import ShardWriter, save_tables

WIDTH = 1024


def main() -> None:
    """Write three checkpoints in each way, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--million", type=int, default=134, help="parameters")
    args = parser.parse_args()
    ranks = join("cpu", timeout=300).with_mesh("cpu", replicate=1)
    group = dist.new_group(backend="gloo")  # the exchanges of a background thread must not meet the others
    assert isinstance(group, dist.ProcessGroup)
    tensors: dict[str, Tensor] = {
        f"layer{index}.{part}": distribute_tensor(torch.randn(WIDTH, WIDTH), ranks.mesh, [Shard(0)])
        for index in range(args.million * 10**6 // WIDTH**2)
        for part in ("weight", "exp_avg", "exp_avg_sq")
    }
    print(f"rank {ranks.rank}: {multiplied(lambda: False, seconds=2):.0f} products a second, nothing written")
    for number in range(3):
        folder = args.folder / str(number)
        measured(ranks, "waiting", partial(foreground, folder / "waiting", tensors, ranks))
        measured(ranks, "background", partial(background, folder / "background", tensors, ranks, group))


def measured(ranks: Ranks, way: str, write: Callable[[], str]) -> None:
    """Print seconds, and how much memory was held beyond that before."""
    process, resident, over = psutil.Process(), [psutil.Process().memory_info().rss], threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            resident.append(process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.perf_counter()
    said = write()
    seconds = time.perf_counter() - start
    over.set()
    thread.join()
    print(
        f"rank {ranks.rank}: {way} {seconds:.2f} s, {(max(resident) - resident[0]) / 1e6:.0f} MB more{said}"
    )


def foreground(folder: Path, tensors: dict[str, Tensor], ranks: Ranks) -> str:
    """Write as Truing does."""
    save_tables(folder, {"trainable": tensors}, ranks, lambda: None)
    return ""


def background(folder: Path, tensors: dict[str, Tensor], ranks: Ranks, group: dist.ProcessGroup) -> str:
    """Copy, write in a thread, and multiply matrices until it is done."""
    start = time.perf_counter()
    written = async_save(
        {f"trainable/{name}": tensor for name, tensor in tensors.items()},
        storage_writer=ShardWriter(folder, ["trainable"], ranks, lambda: None),
        planner=DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
        process_group=group,
    )
    waited = time.perf_counter() - start
    assert isinstance(written, Future)
    rate = multiplied(written.done)
    written.result()
    return f"; training waits {waited:.2f} s, then {rate:.0f} products a second"


def multiplied(done: Callable[[], bool], seconds: float = 600) -> float:
    """Multiply matrices until ``done``; return how many per second."""
    count, start, matrix = 0, time.perf_counter(), torch.randn(512, 512)
    while not done() and time.perf_counter() - start < seconds:
        matrix = torch.tanh(matrix @ matrix)
        count += 1
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
