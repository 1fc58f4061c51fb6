"""Audited TRL runs as a process of accelerate: ``python rank_cases.py MODEL FOLDER CASE…``.

A case is ``trainer+options…``, or ``trainer+options…:fault``. Rank 0 writes the findings of each as JSON.
"""

import hashlib
import json
import sys
import time
from pathlib import Path

import datasets
import peft
import torch
import torch.distributed as dist
import transformers
import trl
from trl_options import SMALL_RUN

from truing.doctor.diagnosis import ranked
from truing.doctor.verdict import FINDING_VERDICTS, Verdict
from truing.integrations.trl import audit
from truing.models.digest import digest

OPTIONS = {
    "lora": {"peft_config": peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")},
    "accumulated": {"gradient_accumulation_steps": 2},
    "bf16": {"bf16": True},
    "bf16-weights": {"bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}},
    "kl": {"beta": 0.1, "loss_type": "grpo"},
    "twice": {"num_iterations": 2},
    "split-groups": {"per_device_train_batch_size": 2, "num_generations": 4},
    "own-means": {"average_tokens_across_devices": False},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "parts": {"steps_per_generation": 4, "gradient_accumulation_steps": 2},
    "quarter": {"top_entropy_quantile": 0.25},
    "packed": {"packing": True, "max_length": 64},
    "evaluated": {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
    "epochs": {"max_steps": 6},
    "one": {"max_steps": 1},
}
COMMON = {**SMALL_RUN, "per_device_train_batch_size": 4, "logging_strategy": "no"}


def varied(completions, **_):
    """Return a reward that differs between answers."""
    return [int(hashlib.md5(str(c).encode()).hexdigest(), 16) % 997 / 997 for c in completions]


def said(role, content):
    """Return a message."""
    return {"role": role, "content": content}


EVALUATED = [{"prompt": [said("user", "how?")]}] * 4


def make(model, folder, options):
    """Return a trainer of TRL."""
    kind, *names = options
    changes = dict(COMMON, output_dir=str(folder))
    for name in names:
        changes |= OPTIONS[name]
    adapter = changes.pop("peft_config", None)
    if kind == "grpo":
        asked = [{"prompt": [said("user", f"what is {i}?")]} for i in range(16)]
        changes = {"num_generations": 2, "max_completion_length": 6, "beta": 0.0} | changes
        return trl.GRPOTrainer(
            model=model,
            args=trl.GRPOConfig(**changes),
            reward_funcs=[varied],
            train_dataset=datasets.Dataset.from_list(asked),
            eval_dataset=datasets.Dataset.from_list(EVALUATED) if "evaluated" in names else None,
            peft_config=adapter,
        )
    pairs = [
        {
            "prompt": [said("user", f"what is {i} and {i}?")],
            "completion": [said("assistant", f"it is {'x' * (i * i % 17)}{2 * i}")],
        }
        for i in range(22)
    ]
    return trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(**changes),
        train_dataset=datasets.Dataset.from_list(pairs),
        eval_dataset=datasets.Dataset.from_list(pairs[:4]) if "evaluated" in names else None,
        peft_config=adapter,
    )


class AtStart(transformers.TrainerCallback):
    """Calls a function after DDP has wrapped the model."""

    def __init__(self, act):
        self.act = act

    def on_train_begin(self, args, state, control, **kwargs):
        self.act()


def wrapped(trainer, name, change):
    """Replace a method of a trainer; ``change`` gets the real one first."""
    real = getattr(trainer, name)
    setattr(trainer, name, lambda *args, **kwargs: change(real, *args, **kwargs))


def own_denominators(trainer):
    """Each process counts its own tokens."""
    if isinstance(trainer, trl.SFTTrainer):

        def count(real, batches, device):
            return sum((batch["labels"][:, 1:] != -100).sum() for batch in batches) * dist.get_world_size()

        wrapped(trainer, "_get_num_items_in_batch", count)
        return

    def generate(real, inputs):
        batch = real(inputs)
        return batch | {"num_items_in_batch": batch["completion_mask"].sum() * dist.get_world_size()}

    wrapped(trainer, "_generate_and_score_completions", generate)


def unsynced(trainer):
    """``no_sync`` is left on."""

    def step(real, model, *args, **kwargs):
        with model.no_sync():
            return real(model, *args, **kwargs)

    wrapped(trainer, "training_step", step)


def unsynced_on_one(trainer):
    """The second process keeps the gradient of its own rows."""
    own = {}

    def keep(weight):
        weight.register_hook(lambda gradient: own.__setitem__(weight, gradient.clone()))

    def step(real, *args, **kwargs):
        loss = real(*args, **kwargs)
        for weight, gradient in own.items():
            weight.grad = gradient
        return loss

    if dist.get_rank() == 1:
        for weight in trainer.model.parameters():
            if weight.requires_grad:
                keep(weight)
        wrapped(trainer, "training_step", step)


def below_ddp(trainer):
    """The forward is that of the model below DDP."""

    def step(real, model, *args, **kwargs):
        return real(model.module, *args, **kwargs)

    wrapped(trainer, "training_step", step)


def same_data(trainer):
    """The data loader is not split over processes."""
    trainer.accelerator.prepare_data_loader = lambda loader, *args, **kwargs: loader


def rows_of_another(trainer):
    """The second process trains the rows of the first."""

    def prepare(real, inputs):
        own = [real(inputs)]
        dist.broadcast_object_list(own, src=0)
        return own[0]

    wrapped(trainer, "_prepare_inputs", prepare)


def summed(trainer):
    """DDP sums gradients."""

    def hook(_, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    trainer.add_callback(AtStart(lambda: trainer.model_wrapped.register_comm_hook(None, hook)))


def averaged_twice(trainer):
    """The loss divides by the tokens of all processes, and lacks their number as a factor."""
    name = "compute_loss" if isinstance(trainer, trl.SFTTrainer) else "_compute_loss"
    wrapped(trainer, name, lambda real, *args, **kwargs: real(*args, **kwargs) / dist.get_world_size())


def other_adapter(trainer):
    """One process initializes its adapter again."""

    def act():
        generator = torch.Generator().manual_seed(99)
        for name, weight in trainer.model.named_parameters():
            if "lora_A" in name and dist.get_rank() == 1:
                weight.data.normal_(std=0.1, generator=generator)

    trainer.add_callback(AtStart(act))


def shifted(trainer):
    """One process scores tokens one too late."""

    def scored(real, *args, **kwargs):
        logprob, *others = real(*args, **kwargs)
        return logprob.roll(1, 1) if dist.get_rank() == 1 else logprob, *others

    wrapped(trainer, "_get_per_token_logps_and_entropies", scored)


def advantages_of_another(trainer):
    """The second process takes the advantages of the first."""

    def generate(real, inputs):
        batch = real(inputs)
        dist.broadcast(batch["advantages"], src=0)
        return batch

    wrapped(trainer, "_generate_and_score_completions", generate)


def other_rate(trainer):
    """One process has another learning rate."""
    if dist.get_rank() == 1:
        trainer.args.learning_rate *= 2


FAULTS = {
    each.__name__: each
    for each in (
        own_denominators,
        unsynced,
        unsynced_on_one,
        below_ddp,
        same_data,
        rows_of_another,
        summed,
        averaged_twice,
        other_adapter,
        shifted,
        advantages_of_another,
        other_rate,
    )
}


def run(model, folder, case):
    """Train one case; return the findings, with the facts of each step."""
    options, _, fault = case.partition(":")
    torch.manual_seed(0)
    trainer = make(model, folder / case, options.split("+"))
    if fault == "unaudited":
        trainer.train()
        return {"weights": digest(trainer.model.state_dict())}
    if fault:
        FAULTS[fault](trainer)
    start = time.perf_counter()
    result = audit(trainer, out=folder / f"saved-{case}")
    trainer.train()
    found = result.diagnosis
    results = {each.code: each.verdict for each in found.results()}
    every = ranked(finding for findings in found.findings.values() for finding in findings)
    return {
        "seconds": time.perf_counter() - start,
        "fired": {code: str(verdict) for code, verdict in results.items() if verdict in FINDING_VERDICTS},
        "clean": [code for code, verdict in results.items() if verdict is Verdict.CLEAN],
        "ranked": [(each.code, each.claim.what, each.step) for each in every],
        "gradients": [
            past.facts["row_gradients"] for past in result.history.past if "row_gradients" in past.facts
        ],
        "rows": [sum(map(len, past.facts["ranks"]["rows"][0]["of_rank"])) for past in result.history.past],
        "report": str(result),
        "weights": digest(trainer.model.state_dict()),
    }


if __name__ == "__main__":
    model, folder, *cases = sys.argv[1:]
    transformers.logging.set_verbosity_error()
    for each in cases:
        outcome = run(model, Path(folder), each)
        place = Path(folder) / f"{each}.rank{dist.get_rank()}.json"
        place.write_text(json.dumps(outcome, default=str))
    dist.barrier()
    dist.destroy_process_group()
