"""Writes a dump with prime-rl's code: `python -m dev.dumps.prime_rl CHECKOUT OUT VERIFIERS`.

``VERIFIERS`` is a checkout of verifiers. The traces are objects of verifiers, GRPO's advantages, the samples,
the episodes' file and the export are made by functions of prime-rl. Forwards are the demo's.
"""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import torch

from dev.dumps.batches import batches, from_command_line, messages
from truing.doctor.evidence import Step
from truing.doctor.traces.demo import GROUP

ROLES = {"user": "UserMessage", "assistant": "AssistantMessage", "tool": "ToolMessage"}
MICRO_BATCHES = 2


def main() -> None:
    """Write the steps."""
    sys.path.insert(0, sys.argv.pop())
    checkout, out = from_command_line("prime_rl.monitors.prime", "prime_rl.monitors.wandb.monitor")
    sys.path[:0] = [str(checkout / "src"), str(checkout / "packages/prime-rl-configs/src")]
    from prime_rl.monitors.file import FileMonitor  # pyright: ignore
    from prime_rl.trainer.rl.token_export import TokenExporter  # pyright: ignore

    exporter = TokenExporter(out, rank=0)
    monitor: Any = SimpleNamespace(output_dir=out)
    for number, step in enumerate(batches(), start=1):
        episodes = [_episode(row, step, part, index, number) for index, row, part in step.slices()]
        asyncio.run(_score(episodes))
        asyncio.run(FileMonitor.log_episodes(monitor, episodes, number, "train", "effective"))
        _export(exporter, step, episodes, number)
        exporter.mark_stable()


def _episode(row: Any, step: Step, part: slice, index: int, number: int) -> Any:
    """Return a row as verifiers leaves it: each message has its tokens."""
    import verifiers.v1 as vf
    from verifiers.v1 import episode, graph, trace, types

    nodes = []
    for role, where in messages(step, part):
        ids = step.tokens["token_ids"][where].tolist()
        sampled = role == "assistant"
        more = {"tool_call_id": "call"} if role == "tool" else {}
        message = getattr(types, ROLES[role])(content="".join(chr(97 + each) for each in ids), **more)
        nodes.append(
            graph.MessageNode(
                parent=len(nodes) - 1 if nodes else None,
                message=message,
                sampled=sampled,
                timestamp=0.0,
                token_ids=ids,
                mask=[sampled] * len(ids),
                is_content=[True] * len(ids),
                logprobs=step.tokens["sampler_logprob"][where].tolist() if sampled else [],
            )
        )
    data = vf.TaskData(idx=index // GROUP, prompt="")  # pyright: ignore
    task = trace.TraceTask.model_construct(type="Demo", data=data, key=str(index // GROUP))
    whole = trace.Trace.model_construct(
        id=f"{number}-{index}",
        task=task,
        agent=trace.AgentInfo.model_construct(config=None),
        nodes=nodes,
        calls=[trace.ModelCall(node=len(nodes) - 1, finish_reason="stop")],
        rewards={"demo": trace.Reward(score=row.reward)},
        timing=trace.Timing(start=0.0),
        is_completed=True,
        ok=True,
    )
    policy = episode.PolicySpan(start=number - 1, end=number - 1)
    work = episode.TrainWorkInfo(step=number, policy=policy)
    return episode.Episode.model_construct(
        id=f"e{number}-{index}",
        task=task,
        group=episode.GroupInfo(id=f"{number}-{index // GROUP}"),
        run=episode.TrainRunInfo(id="run", work=work),
        ok=True,
        traces=[whole],
    )


async def _score(episodes: list[Any]) -> None:
    """Give each group its advantages."""
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm  # pyright: ignore

    algorithm: Any = SimpleNamespace(length_penalty=None)
    for start in range(0, len(episodes), GROUP):
        await GRPOAlgorithm.score_group(algorithm, episodes[start : start + GROUP])


def _export(exporter: Any, step: Step, episodes: list[Any], number: int) -> None:
    """Pack the samples into micro-batches, and export them with the forward of the first optimizer step."""
    from prime_rl.orchestrator.trajectories import trace_to_samples  # pyright: ignore

    samples = [sample for each in episodes for sample in trace_to_samples(each.traces[0], env_name="demo")]
    new, entropy = step.at_first_optimizer_step("new_logprob"), step.at_first_optimizer_step("entropy")
    size = len(samples) // MICRO_BATCHES
    for micro in range(MICRO_BATCHES):
        chosen = samples[micro * size : (micro + 1) * size]
        parts = [part for index, _, part in step.slices() if index // size == micro]
        batch = {
            "input_ids": [i for each in chosen for i in each.token_ids],
            "position_ids": [i for each in chosen for i in range(len(each.token_ids))],
            "loss_mask": [i for each in chosen for i in each.mask],
            "advantages": [i for each in chosen for i in each.advantages],
            "inference_logprobs": [i for each in chosen for i in each.logprobs],
        }
        tensors: dict[str, Any] = {name: torch.tensor(values) for name, values in batch.items()}
        tensors["env_names"] = [each.env_name for each in chosen for _ in each.token_ids]
        output = {
            "logprobs": torch.cat([new[part] for part in parts]),
            "entropy": torch.cat([entropy[part] for part in parts]),
        }
        lengths = [len(each.token_ids) for each in chosen]
        exporter.export(
            number, micro, tensors, output, lengths, SimpleNamespace(dppo_mask_high=0.2, dppo_mask_low=0.2)
        )


if __name__ == "__main__":
    main()
