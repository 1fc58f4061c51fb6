"""Traces whose loss and advantages verl computes: `python -m dev.dumps.verl_losses VERL OUT`.

VERL is its package. The loop of the demo of traces takes steps of two epochs and two minibatches with
functions of `trainer/ppo/core_algos.py`, and changes verl's own configuration as the case needs.
`truing check OUT/CASE/trace --setup OUT/CASE/config.yaml` has no finding, and prints verl's formulas.
"""

import copy
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from dev.dumps.extract import function_of
from truing.doctor.traces.demo import GROUP, KL, PROMPTS, RATE, STEPS, Loop
from truing.trace_writer import Writer

CORE, GENERATED = "trainer/ppo/core_algos.py", "trainer/config/_generated_ppo_trainer.yaml"
CLIP_HIGH, EPOCHS, MINIBATCHES = 0.28, 2, 2


@dataclass(frozen=True)
class Case:
    """Settings of verl."""

    estimator: str
    loss: str
    aggregation: str
    kl: bool = False


CASES = {
    "token-mean": Case("grpo", "vanilla", "token-mean", kl=True),
    "sequence-mean": Case("grpo", "vanilla", "seq-mean-token-mean"),
    "rloo": Case("rloo", "vanilla", "seq-mean-token-sum", kl=True),
    "gspo": Case("grpo", "gspo", "seq-mean-token-mean"),
    "width": Case("grpo", "vanilla", "seq-mean-token-sum-norm"),
}


class Config(dict[str, Any]):
    """A part of verl's configuration, with its keys as attributes."""

    __getattr__ = dict.get


def functions(core: Path) -> SimpleNamespace:
    """Return functions of verl's file, compiled without what it imports."""

    def masked_sum(values: Tensor, mask: Tensor, axis: None = None) -> Tensor:
        return torch.where(mask.bool(), values, 0.0).sum()

    def masked_mean(values: Tensor, mask: Tensor, axis: None = None) -> Tensor:
        return masked_sum(values, mask) / (mask.sum() + 1e-8)

    def registered(*names: object) -> Any:
        return lambda function: function

    names: dict[str, Any] = {
        **{"torch": torch, "np": np, "defaultdict": defaultdict, "ActorConfig": Config, "AlgoConfig": int},
        "verl_F": SimpleNamespace(masked_sum=masked_sum, masked_mean=masked_mean),
        "AdvantageEstimator": SimpleNamespace(GRPO="", RLOO=""),
        **dict.fromkeys(("register_policy_loss", "register_adv_est", "deprecated"), registered),
        **dict.fromkeys(("Optional", "Any")),
    }
    for name in ("agg_loss", "kl_penalty_forward", "kl_penalty"):
        names[name] = function_of(core, name, names)
    return SimpleNamespace(
        mean=names["agg_loss"],
        kl=names["kl_penalty"],
        vanilla=function_of(core, "compute_policy_loss_vanilla", names),
        gspo=function_of(core, "compute_policy_loss_gspo", names),
        grpo=function_of(core, "compute_grpo_outcome_advantage", names),
        rloo=function_of(core, "compute_rloo_outcome_advantage", names),
    )


def write(folder: Path, case: Case, verl: SimpleNamespace) -> None:
    """Train the demo's policy with verl's functions, and write the trace."""
    writer = Writer(folder, producer="verl", waiting=STEPS)
    loop = Loop(writer, "", RATE, 0)
    for number in range(STEPS):
        batch = loop.sample(loop.weights.detach())
        with torch.no_grad():
            old, reference = (loop.logprob(each, batch.ids) for each in (loop.weights, loop.reference))
        mask, scores = batch.sampled.float(), torch.zeros(batch.ids.shape)
        scores[:, -1] = batch.reward
        uid = np.array([str(row // GROUP) for row in range(len(batch.ids))])
        advantages, _ = getattr(verl, case.estimator)(scores, mask, uid)
        record = loop.write(number, batch, mask, old, reference, advantages)
        minibatches = torch.arange(len(batch.ids)).chunk(MINIBATCHES) * EPOCHS
        for step, minibatch in enumerate(minibatches):
            loop.optimizer.zero_grad()
            sizes = {
                "dp_size": 1,
                "batch_num_tokens": mask[minibatch].sum(),
                "global_batch_size": len(minibatch),
            }
            for micro, rows in enumerate(minibatch.chunk(2)):
                new = loop.logprob(loop.weights, batch.ids[rows])
                new = record.forward(new, rows=rows.tolist(), optimizer_step=step, micro_batch=micro)
                _loss(
                    case, verl, sizes, new, old[rows], reference[rows], advantages[rows], mask[rows]
                ).backward()
            loop.optimizer.step()
    writer.close()


def _loss(
    case: Case,
    verl: SimpleNamespace,
    sizes: dict[str, Any],
    new: Tensor,
    old: Tensor,
    reference: Tensor,
    advantages: Tensor,
    mask: Tensor,
) -> Tensor:
    """Return verl's loss of a micro-batch, as its `ppo_loss` adds it up."""
    config = Config(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=CLIP_HIGH, global_batch_info=sizes)
    given = {"advantages": advantages, "response_mask": mask, "loss_agg_mode": case.aggregation}
    loss, _ = getattr(verl, case.loss)(old_log_prob=old, log_prob=new, config=config, **given)
    if not case.kl:
        return loss
    nats = verl.kl(logprob=new, ref_logprob=reference, kl_penalty="low_var_kl")
    return loss + KL * verl.mean(loss_mat=nats, loss_mask=mask, loss_agg_mode=case.aggregation, **sizes)


def declared(package: Path, case: Case) -> dict[str, Any]:
    """Return verl's generated configuration with the settings of a case."""
    config = copy.deepcopy(yaml.safe_load((package / GENERATED).read_text()))
    actor = config["actor_rollout_ref"]["actor"]
    actor |= {"clip_ratio_high": CLIP_HIGH, "loss_agg_mode": case.aggregation, "use_kl_loss": case.kl}
    actor |= {"kl_loss_coef": KL, "ppo_epochs": EPOCHS, "ppo_mini_batch_size": PROMPTS // MINIBATCHES}
    actor["policy_loss"]["loss_mode"], actor["optim"]["lr"] = case.loss, RATE
    config["actor_rollout_ref"]["rollout"]["n"] = GROUP
    config["algorithm"]["adv_estimator"], config["data"]["train_batch_size"] = case.estimator, PROMPTS
    return config


def main() -> None:
    """Write each case, and check it."""
    package, out = map(Path, sys.argv[1:])
    verl = functions(package / CORE)
    for name, case in CASES.items():
        trace, file = out / name / "trace", out / name / "config.yaml"
        write(trace, case, verl)
        file.write_text(yaml.safe_dump(declared(package, case)))
        command = [sys.executable, "-m", "truing", "check", trace, "--setup", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"## {name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
