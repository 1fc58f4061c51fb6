"""The doctor beside TRL: ``audit(trainer)`` on a plain ``GRPOTrainer``, before ``trainer.train()``.

It stands around the trainer's own methods and changes nothing of what they compute: what was drawn, graded
and trained on is copied as it passes by, and each update is judged by every rule whose inputs are there.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from transformers import TrainerCallback

from truing.doctor.evidence import Past, Setup, Step
from truing.doctor.examine import Diagnosis, chosen
from truing.doctor.live import stop_at
from truing.doctor.report import lines, with_excerpt
from truing.doctor.texts import texts
from truing.errors import RecipeError
from truing.integrations.look import plain_facts
from truing.integrations.rows import Micro, step_of_rows
from truing.integrations.setup import scored_under, setup_of_trl
from truing.models.digest import quick_sum
from truing.training.facts import spot

ROW = "truing_row"
"""Added to the trainer's batch, so that rows are known again after it is shuffled and split."""

AROUND = {
    "_generate_single_turn": "drew",
    "_calculate_rewards": "graded",
    "_generate_and_score_completions": "generated_batch",
    "_get_per_token_logps_and_entropies": "scored",
    "_compute_loss": "lost",
    "training_step": "stepped",
}
"""Methods of the trainer that an audit stands around, and its own of each."""


class Audit:
    """What was found so far; ``str()`` is the report."""

    def __init__(self, trainer: Any, *, stop: bool, select: Sequence[str], ignore: Sequence[str]) -> None:
        self.trainer, self.stop = trainer, stop
        self.diagnosis = Diagnosis(chosen(select, ignore))
        self.setup: Setup = setup_of_trl(trainer)
        self.past: list[Past] = []
        self.drawn: list[
            tuple[list[int], list[int]]
        ] = []  # prompt and answer of each row, as the sampler had it
        self.generated: dict[str, Any] = {}
        self.rewards: Tensor | None = None
        self.window: list[Micro] = []  # micro-batches since the last update
        self.open: list[Micro] = []  # those whose backward pass is still to come
        self.updates = 0  # since the last generation
        self.facts: dict[str, Any] = {}
        self.numbers: dict[str, float] = {}
        self.told: set[str] = set()

    def __str__(self) -> str:
        return "\n".join(text for text, _ in lines(self.diagnosis, "RUN"))

    def step(self, done: int) -> Step:
        """The update that the window comes to."""
        made = (self.setup, self.window, self.generated, self.updates, self.numbers, self.facts)
        return step_of_rows(done, *made, tuple(self.past))

    def judge(self, done: int) -> None:
        """Judge the update that was just made."""
        step = self.step(done)
        found = self.diagnosis.add(step)
        for each in found:
            if each.code not in self.told:
                self.told.add(each.code)
                self.diagnosis.findings[each.code][0] = with_excerpt(each, step, texts(self.tokenizer))
                print(
                    f"truing: {each.claim.verdict} {each.code}: {each.claim.what} ({each.where})",
                    file=sys.stderr,
                )
        self.past.append(Past(step.stage, step.step, step.numbers, step.facts))
        self.window, self.facts = [], {}
        self.updates += 1
        if self.stop:
            stop_at(found)

    @property
    def tokenizer(self) -> Any:
        """Of the trainer, also within a processor."""
        return getattr(self.trainer.processing_class, "tokenizer", self.trainer.processing_class)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """What is trained."""
        return {
            name: weight for name, weight in self.trainer.model.named_parameters() if weight.requires_grad
        }

    def drew(self, real: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """The ids that the sampler returned, before anybody touched them."""
        out = real(prompt_ids, *args, **kwargs)
        if self.trainer.model.training and not self.drawn:
            self.drawn = [(list(p), list(c)) for p, c in zip(prompt_ids, out[0], strict=True)]
        return out

    def graded(self, real: Any, *lists: Any) -> Any:
        """Rewards by function; the first time they are asked for again in another order of rows."""
        found = real(*lists)
        self.rewards = self._total(found)
        if not self.past and self.trainer.model.training and self.trainer.accelerator.num_processes == 1:
            again = self._total(real(*(each[1:] + each[:1] for each in lists))).roll(1)
            pairs = enumerate(zip(self.rewards.tolist(), again.tolist(), strict=True))
            told = [{"sample_id": str(i), "stored": stored, "again": other} for i, (stored, other) in pairs]
            self.facts["regraded"] = told
        return found

    def generated_batch(self, real: Any, inputs: Any) -> Any:
        """What a generation came to; rows get numbers."""
        if not self.trainer.model.training:
            return real(inputs)
        self.drawn, self.generated = [], {}
        batch = real(inputs)
        count = len(batch["completion_ids"])
        if self.rewards is None or len(self.rewards) != count:
            return batch  # other processes have the rest of the rewards
        self.generated = {
            "drawn": self.drawn if len(self.drawn) == count and not self.trainer.tools else None,
            "rewards": self.rewards,
            "prompts": [each.get("prompt") for each in inputs],
            "completions": list(self.trainer._logs["completion"])[-count:],
            "version": self.trainer.state.global_step,
        }
        self.updates = 0
        return batch | {ROW: torch.arange(count, device=batch["completion_ids"].device)}

    def lost(self, real: Any, model: Any, inputs: Any) -> Any:
        """The inputs of a loss."""
        if ROW in inputs and model.training:
            self.open.append(Micro({key: x for key, x in inputs.items() if x is not None}))
        return real(model, inputs)

    def scored(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """The log-probabilities that a loss is made of; their gradient is asked for."""
        out = real(*args, **kwargs)
        if self.open and self.open[-1].logprob is None and out[0].requires_grad:
            out[0].retain_grad()
            self.open[-1].logprob, self.open[-1].entropy = out[0], out[1]
        return out

    def stepped(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """A forward and backward pass; now the gradients are there."""
        out = real(*args, **kwargs)
        self.window += [each.closed() for each in self.open]
        self.open = []
        return out

    def look(self, done: int) -> None:
        """Before the first update: a plain forward of some rows."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        training = model.training
        model.eval()
        self.facts["plain"] = plain_facts(model, self.step(done), scored_under(self.trainer.args))
        model.train(training)

    def _total(self, by_function: Tensor) -> Tensor:
        """Rewards of rows, [B] float64, NaN where no function judged."""
        total = (by_function * self.trainer.reward_weights.to(by_function.device)).nansum(1)
        total[by_function.isnan().all(1)] = torch.nan
        return total.detach().cpu().double()


class _Watch(TrainerCallback):
    """Digests around the optimiser's step, and the end of it."""

    def __init__(self, audit: Audit) -> None:
        self.audit, self.before = audit, ""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Just before weights move; gradients were clipped already."""
        audit, parameters = self.audit, self.audit.parameters
        gradients = [weight.grad for weight in parameters.values() if weight.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        audit.numbers = {"grad/norm": norm, "lr": audit.trainer.optimizer.param_groups[0]["lr"]}
        if audit.window and not audit.past:
            audit.look(state.global_step)
        self.before = quick_sum(spot(parameters, state.global_step))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Right after weights moved."""
        parameters, turn = self.audit.parameters, state.global_step
        after, following = (quick_sum(spot(parameters, n)) for n in (turn, turn + 1))
        self.audit.facts["weights"] = {"before": self.before, "after": after, "next": following}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An update is done."""
        if self.audit.window:
            self.audit.judge(state.global_step - 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The run is over: what it came to."""
        console = Console(stderr=True, highlight=False)
        for text, style in lines(self.audit.diagnosis, "RUN"):
            console.print(text, style=style or None, markup=False, soft_wrap=True)


def audit(
    trainer: Any, *, stop: bool = False, select: Sequence[str] = (), ignore: Sequence[str] = ()
) -> Audit:
    """Judge each update of a ``GRPOTrainer``; call it before ``trainer.train()``.

    Args:
        trainer: as TRL made it.
        stop: raise at an update of which a rule proves that it is wrong.
        select: codes or families of rules; all where none is given.
        ignore: codes or families to leave out.
    """
    for name in AROUND:
        if not hasattr(trainer, name):
            raise RecipeError(
                "this trainer cannot be audited",
                got=f"{type(trainer).__name__} without {name}",
                expected="a GRPOTrainer of TRL 1.16",
            )
    made = Audit(trainer, stop=stop, select=select, ignore=ignore)
    for name, ours in AROUND.items():
        setattr(trainer, name, _around(trainer, name, getattr(made, ours)))
    trainer.add_callback(_Watch(made))
    return made


def _around(trainer: Any, name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """A method that hands the trainer's own to ours; it is looked up at each call, as Python would."""
    own = trainer.__dict__.get(name)

    def called(*args: Any, **kwargs: Any) -> Any:
        return ours(own or getattr(type(trainer), name).__get__(trainer), *args, **kwargs)

    return called
