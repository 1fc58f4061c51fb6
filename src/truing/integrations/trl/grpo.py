"""An audit of TRL's ``GRPOTrainer``."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.facts.batch_fingerprint import batch_fingerprint
from truing.instrumentation.audit_schedule import AuditBudget
from truing.integrations.trl.base import AUDIT_SECONDS, AUDIT_SHARE, Audit
from truing.integrations.trl.draw_check import Generation, draw_audit_facts
from truing.integrations.trl.grpo_rows import GENERATION_KEY, step_of_rows
from truing.integrations.trl.micro_batch import RecordedMicroBatch
from truing.integrations.trl.sample_usage import UsageCounter
from truing.integrations.trl.setup import scoring_params, setup_of_grpo
from truing.utils.rng import permutation

ROW_KEY = "truing_row"
"""Added to the trainer's batch, so that rows are known again after it is shuffled and split."""

GENERATION_STRIDE = 1 << 32
"""Between the numbers of two generations' first rows: a row says which generation it is of."""


@contextmanager
def _rng_preserved() -> Iterator[None]:
    """Whoever draws random numbers within, nobody outside notices."""
    ours, theirs, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(ours)
    np.random.set_state(theirs)
    torch.set_rng_state(torchs)


def _rng_state(device: torch.device) -> Tensor:
    """Of torch's random numbers there."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextmanager
def _reference_adapter(policy: Any) -> Iterator[Any]:
    """The policy with the adapter that training began with, or with none."""
    from trl.trainer.utils import use_adapter  # whose trainer is audited has it

    with use_adapter(policy, "ref" if "ref" in policy.peft_config else None):
        yield policy


class GrpoAudit(Audit):
    """Beside a trainer that draws, grades and updates."""

    wrapped_methods: ClassVar[dict[str, str]] = {
        "_generate_single_turn": "after_generate",
        "_calculate_rewards": "after_rewards",
        "_generate_and_score_completions": "after_generation",
        "_get_per_token_logps_and_entropies": "after_logprobs",
        "_compute_loss": "before_loss",
        "training_step": "around_training_step",
    }
    required_attributes = tuple(wrapped_methods)

    def __init__(
        self, trainer: Any, *, stop: bool, out: Path | None, select: Sequence[str], ignore: Sequence[str]
    ) -> None:
        self.drawn: list[tuple[list[int], list[int]]] = []  # prompt and answer, as the sampler had them
        self.rng_state: Tensor | None = None  # torch's random numbers, before they were drawn
        self.current_generation: dict[str, Any] = {}
        self.generations_by_number: dict[
            int, dict[str, Any]
        ] = {}  # generations by number, from the last that was used on
        self.usage = UsageCounter(trainer.args, trainer.num_iterations)
        self.eval_prompts: set[str] = set()  # prompts of evaluations
        self.rewards: Tensor | None = None
        self.micro_batches: list[RecordedMicroBatch] = []  # micro-batches since the last update
        self.open_micro_batches: list[RecordedMicroBatch] = []  # those whose backward pass is still to come
        self.updates_of_generation = 0  # since the last generation
        self.generations = 0
        self.draw_audit_budget = AuditBudget(AUDIT_SHARE, AUDIT_SECONDS)
        declared = setup_of_grpo(trainer), scoring_params(trainer.args)
        super().__init__(trainer, *declared, stop=stop, out=out, select=select, ignore=ignore)

    @property
    def has_update(self) -> bool:
        """Whether any micro-batch was trained on since the last update."""
        return bool(self.micro_batches)

    @property
    def draws_by_torch(self) -> bool:
        """Whether transformers draws, from all that is scored, by torch's random numbers."""
        trainer, args = self.trainer, self.trainer.args
        elsewhere = trainer.use_vllm or trainer.use_transformers_continuous_batching or trainer.rollout_func
        truncated = args.top_p < 1 or args.top_k or args.min_p or args.repetition_penalty != 1
        return not (elsewhere or truncated or args.generation_kwargs)

    @property
    def audit_due(self) -> bool:
        """Only the first update of a generation is by the weights that drew; it may hold parts of two."""
        now = self.trainer.state.global_step
        return super().audit_due and all(
            micro.inputs[GENERATION_KEY]["version"] == now for micro in self.micro_batches
        )

    @property
    def reference_model(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """A model of its own, or the policy below its adapter, as TRL itself asks it."""
        accelerator, own = self.trainer.accelerator, self.trainer.ref_model
        if not self.trainer.beta:
            return None
        if own is not None:
            return lambda: nullcontext(accelerator.unwrap_model(own))
        return lambda: _reference_adapter(accelerator.unwrap_model(self.trainer.model))

    @property
    def reference_weights(self) -> dict[str, Tensor]:
        """Of a model of its own, unless syncs are declared."""
        own, moves = self.trainer.ref_model, self.setup.reference_moves
        return {} if own is None or moves else dict(own.named_parameters())

    @property
    def gradient_is_sum(self) -> bool:
        """A bonus on the entropy pulls at no log-probability."""
        return super().gradient_is_sum and not self.trainer._entropy_bonus_enabled

    def step(self, done: int) -> Step:
        """The update that the window comes to."""
        rows = [
            (micro.inputs[GENERATION_KEY]["number"], micro.inputs[ROW_KEY]) for micro in self.micro_batches
        ]
        self.facts["uses"] = self.usage.facts(rows)
        made = (self.setup, self.micro_batches, self.updates_of_generation, self.numbers, self.facts)
        return step_of_rows(done, *made, tuple(self.past))

    def reset(self) -> None:
        """The next update may be of the same generation."""
        self.micro_batches = []
        self.updates_of_generation += 1

    def after_generate(self, real: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """The ids that the sampler returned, before anybody touched them."""
        chance = _rng_state(self.trainer.accelerator.device)
        out = real(prompt_ids, *args, **kwargs)
        if self.trainer.model.training and not self.drawn:
            self.drawn = [(list(p), list(c)) for p, c in zip(prompt_ids, out[0], strict=True)]
            self.rng_state = chance if self.draws_by_torch else None
        return out

    def after_rewards(self, real: Any, *lists: Any) -> Any:
        """Rewards by function; the first time they are asked for again in another order of rows."""
        found = real(*lists)
        self.rewards = self._total(found)
        if not self.past and self.trainer.model.training and self.trainer.accelerator.num_processes == 1:
            order = permutation(len(self.rewards), "graded again")
            with _rng_preserved():
                other = self._total(real(*([each[i] for i in order] for each in lists)))
            again = torch.empty_like(other).index_copy(0, torch.tensor(order), other)
            pairs = enumerate(zip(self.rewards.tolist(), again.tolist(), strict=True))
            told = [
                {"sample_id": f"{self.generations}.{i}", "stored": stored, "again": other}
                for i, (stored, other) in pairs
            ]
            self.facts["regraded"] = told
        return found

    def after_generation(self, real: Any, inputs: Any) -> Any:
        """What a generation came to; rows get numbers."""
        prompts = [each.get("prompt") for each in inputs]
        if not self.trainer.model.training:
            self.eval_prompts |= set(map(repr, prompts))
            return real(inputs)
        self.drawn, self.current_generation = [], {}
        batch = real(inputs)
        count = len(batch["completion_ids"])
        if self.rewards is None or len(self.rewards) != count:
            return batch  # other processes have the rest of the rewards
        self.current_generation = {
            "number": self.generations,
            "drawn": self.drawn if len(self.drawn) == count and not self.trainer.tools else None,
            "rewards": self.rewards,
            "prompts": prompts,
            "completions": list(self.trainer._logs["completion"])[-count:],
            "version": self.trainer.state.global_step,
            "pad": self.tokenizer.pad_token_id,
        }
        self._keep_generation(batch, count)
        first = self.generations * GENERATION_STRIDE
        self.updates_of_generation = 0
        self.generations += 1
        self._audit_draws()
        return batch | {ROW_KEY: torch.arange(first, first + count, device=batch["completion_ids"].device)}

    def _keep_generation(self, batch: Any, count: int) -> None:
        """What tells this generation from others, and who asks for it beside."""
        number, last = self.generations, max(self.usage.micro_batches_used, default=0)
        self.generations_by_number = {
            each: made for each, made in self.generations_by_number.items() if each >= last
        }
        self.generations_by_number[number] = self.current_generation
        self.usage.add_generation(number, count)
        ids, masks = (
            [batch[f"{part}_{kind}"].cpu() for part in ("prompt", "completion")] for kind in ("ids", "mask")
        )
        rows = [
            [part[i][mask[i].bool()] for part, mask in zip(ids, masks, strict=True)] for i in range(count)
        ]
        self.facts["batch"] = batch_fingerprint(
            [(f"{number}.{i}", torch.cat(row), len(row[0])) for i, row in enumerate(rows)],
            number=number,
            drawn=count // self.trainer.num_generations,
            total=self.dataset_size,
        )
        if self.eval_prompts:
            both = [
                f"{number}.{i}"
                for i, x in enumerate(self.current_generation["prompts"])
                if repr(x) in self.eval_prompts
            ]
            shared = {"trained": both[:3], "count": len(both), "declared": False}
            self.facts["held_out"] = shared | {"tasks": len(self.eval_prompts)}

    def _audit_draws(self) -> None:
        """Bets on what was drawn, by the weights that drew it, before any of them moves."""
        drawn, elapsed = self.current_generation["drawn"], time.perf_counter() - self.started
        if drawn is None or not self.draw_audit_budget.due(elapsed):
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        key = self.trainer.args.seed, self.trainer.state.global_step
        model.eval()
        with self.draw_audit_budget.timed(), self.trainer.accelerator.autocast():
            generation = Generation(drawn, self.rng_state)
            found = draw_audit_facts(model, generation, self.sampling_params, self.setup.stop_ids or (), key)
            if replay := found.get("replay"):
                row, token = replay["where"]
                replay["where"] = f"{self.current_generation['number']}.{row}", token
            self.facts["audit"] = found
        model.train()

    def before_loss(self, real: Any, model: Any, inputs: Any) -> Any:
        """The inputs of a loss."""
        if ROW_KEY in inputs and model.training:
            given = {key: x for key, x in inputs.items() if x is not None}
            made = self.generations_by_number.get(
                int(inputs[ROW_KEY][0]) // GENERATION_STRIDE
            )  # an update may hold parts of several
            if made is not None:
                self.open_micro_batches.append(
                    RecordedMicroBatch(
                        given | {ROW_KEY: inputs[ROW_KEY] % GENERATION_STRIDE, GENERATION_KEY: made}
                    )
                )
        return real(model, inputs)

    def after_logprobs(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """The log-probabilities that a loss is made of; their gradient is asked for."""
        out = real(*args, **kwargs)
        if self.open_micro_batches:
            self.open_micro_batches[-1].keep_logprobs(*out[:2])
        return out

    def around_training_step(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """A forward and backward pass; now the gradients are there."""
        self.open_micro_batches = []  # what a pass that failed had left
        out = real(*args, **kwargs)
        for each in self.open_micro_batches:
            self.usage.add_micro_batch(each.inputs[GENERATION_KEY]["number"], each.inputs[ROW_KEY].tolist())
        self.micro_batches += [each.detached() for each in self.open_micro_batches]
        self.open_micro_batches = []
        return out

    def _total(self, by_function: Tensor) -> Tensor:
        """Rewards of rows, [B] float64, NaN where no function judged."""
        total = (by_function * self.trainer.reward_weights.to(by_function.device)).nansum(1)
        total[by_function.isnan().all(1)] = torch.nan
        return total.detach().cpu().double()
