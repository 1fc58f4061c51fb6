"""An audit of TRL's ``GRPOTrainer``."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor

from truing.doctor.evidence import Setup
from truing.integrations.trl.base import AUDIT_SECONDS, AUDIT_SHARE, Audit
from truing.integrations.trl.draw_check import Generation, draw_audit_facts
from truing.integrations.trl.example_counts import Example, digest_of
from truing.integrations.trl.grpo_rows import GENERATION_KEY, ROW_KEY, loss_tokens, rows_of, unpadded
from truing.integrations.trl.micro_batch import RecordedMicroBatch
from truing.integrations.trl.rank_parts import RankPart
from truing.integrations.trl.rng_state import rng_preserved, rng_state_of
from truing.integrations.trl.rows import Rows
from truing.integrations.trl.sample_usage import Usage, UsageCounter
from truing.integrations.trl.setup import scoring_params, setup_of_grpo
from truing.integrations.trl.vllm_engine import VllmEngine
from truing.measurements.audit_budget import AuditBudget
from truing.utils.rng import permutation

GENERATION_STRIDE = 1 << 32
"""Difference between the first row numbers of two generations: a row number contains its generation."""


@contextmanager
def _reference_adapter(policy: Any) -> Iterator[Any]:
    """Use the policy with the adapter of the start of training, or without any, within the block."""
    from trl.trainer.utils import use_adapter  # installed, as its trainer is audited

    with use_adapter(policy, "ref" if "ref" in policy.peft_config else None):
        yield policy


class GrpoAudit(Audit):
    """Audits a trainer that samples, grades and steps."""

    wrapped_methods: ClassVar[dict[str, str]] = {
        "_generate_single_turn": "after_generate",
        "_calculate_rewards": "after_rewards",
        "_generate_and_score_completions": "after_generation",
        "_get_per_token_logps_and_entropies": "after_logprobs",
        "_compute_loss": "before_loss",
        "training_step": "around_training_step",
    }
    stage: ClassVar[str] = "grpo"
    example_column = "prompt"
    required_attributes = (*wrapped_methods, "importance_sampling_level")

    declared: ClassVar[Callable[[Any], Setup]] = staticmethod(setup_of_grpo)
    """Returns the declared settings of a trainer."""

    def __init__(self, trainer: Any, **options: Any) -> None:
        self.drawn: list[tuple[list[int], list[int]]] = []  # prompt and answer ids from the sampler
        self.rng_state: Tensor | None = None  # torch's, before sampling
        self.generations_by_number: dict[int, dict[str, Any]] = {}  # from the last used one on
        self.usage_counter = UsageCounter(trainer.args, trainer.num_iterations)
        self.eval_prompts: set[str] = set()  # prompts of evaluations
        self.rewards: Tensor | None = None
        self.generations = 0
        self.draw_audit_budget = AuditBudget(AUDIT_SHARE, AUDIT_SECONDS)
        super().__init__(trainer, type(self).declared(trainer), scoring_params(trainer.args), **options)
        self.engine = VllmEngine(self) if trainer.use_vllm else None

    @property
    def draws_by_torch(self) -> bool:
        """Whether transformers samples from the whole distribution with torch's random numbers."""
        trainer = self.trainer
        elsewhere = trainer.use_vllm or trainer.use_transformers_continuous_batching
        return not (elsewhere or getattr(trainer, "rollout_func", None) or self.setup.left_out)

    @property
    def audit_due(self) -> bool:
        """Whether to audit: only the first step of its generations has the weights that sampled."""
        version = self.trainer.state.global_step
        return super().audit_due and all(
            micro.inputs[GENERATION_KEY]["version"] == version for micro in self.micro_batches
        )

    @property
    def reference_model(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """Return the separate reference model, or the policy below its adapter, as TRL uses it."""
        accelerator, own = self.trainer.accelerator, self.trainer.ref_model
        if not self.trainer.beta:
            return None
        if own is not None:
            return lambda: nullcontext(accelerator.unwrap_model(own))
        return lambda: _reference_adapter(self.model)

    @property
    def reference_weights(self) -> dict[str, Tensor]:
        """Return the weights of a separate reference model, unless it is synced."""
        own, synced = self.trainer.ref_model, self.setup.reference_moves
        return {} if own is None or synced else dict(own.named_parameters())

    @property
    def gradient_is_sum(self) -> bool:
        """Whether the whole gradient comes from log-probabilities; an entropy bonus adds to it."""
        return super().gradient_is_sum and not self.has_entropy_bonus

    @property
    def has_entropy_bonus(self) -> bool:
        """Whether the loss has a bonus on the entropy."""
        return self.trainer._entropy_bonus_enabled

    def answers_of(self, generated: Any) -> Sequence[list[int]]:
        """Return the sampled ids of what the sampler returns."""
        return generated[0]

    def rows(self, done: int) -> Rows:
        """Return the rows of this rank since the last step."""
        return rows_of(self.micro_batches, self.setup, done)

    def examples(self, rows: Rows) -> dict[str, Example]:
        """Return the prompt of each row: its group, its generation and its digest."""
        examples: dict[str, Example] = {}
        for micro in self.micro_batches:
            generation = micro.inputs[GENERATION_KEY]
            for row in micro.inputs[ROW_KEY].tolist():
                number, group = generation["number"], row // self.trainer.num_generations
                prompt = digest_of(generation["prompts"][row])
                examples[f"{number}.{row}"] = Example(f"{number}.{group}", number, prompt)
        return examples

    def usage(self) -> dict[int, Usage]:
        """Return how often this rank used the rows of each generation in the step."""
        return self.usage_counter.usage(
            [(micro.inputs[GENERATION_KEY]["number"], micro.inputs[ROW_KEY]) for micro in self.micro_batches]
        )

    def facts_of_all(self, parts: Sequence[RankPart]) -> dict[str, Any]:
        """Return how often the rows of all ranks are used, and the tokens of their generations."""
        facts: dict[str, Any] = {"sample_usage": self.usage_counter.facts([part.usage for part in parts])}
        if self.setup.aggregation == "generation_token_mean":
            names = [row.sample_id for part in parts for row in part.rows.samples]
            numbers = {name: int(name.partition(".")[0]) for name in names}
            facts["generation_tokens"] = {
                name: self.generations_by_number[number]["tokens"] for name, number in numbers.items()
            }
        return facts

    def after_generate(self, real: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the ids that the sampler returns, and the RNG state before."""
        rng_state = rng_state_of(self.trainer.accelerator.device)
        out = real(prompt_ids, *args, **kwargs)
        if self.trainer.model.training and not self.drawn:
            self.drawn = [(list(p), list(c)) for p, c in zip(prompt_ids, self.answers_of(out), strict=True)]
            self.rng_state = rng_state if self.draws_by_torch else None
        return out

    def after_rewards(self, real: Any, *lists: Any) -> Any:
        """Record rewards of all ranks; the first time, compute them again in another order of rows."""
        by_function = real(*lists)
        self.rewards = self._total(by_function)
        if not self.generations and self.trainer.model.training:
            count = len(self.rewards) // self.ranks.size
            order = permutation(count, "graded again")
            with rng_preserved():
                other = self._total(real(*([each[i] for i in order] for each in lists)))
            of_all = [rank * count + i for rank in range(self.ranks.size) for i in order]
            again = torch.empty_like(other).index_copy(0, torch.tensor(of_all), other)
            pairs = enumerate(zip(self.rewards.tolist(), again.tolist(), strict=True))
            self.facts["regraded"] = [
                {"sample_id": f"{self.generations}.{i}", "stored": stored, "again": other}
                for i, (stored, other) in pairs
            ]
        return by_function

    def after_generation(self, real: Any, inputs: Any) -> Any:
        """Record a generation and number its rows, over all ranks."""
        prompts = [each.get("prompt") for each in inputs]
        if not self.trainer.model.training:
            every = self.ranks.gather("prompts of an evaluation", set(map(repr, prompts)))
            self.eval_prompts |= set[str]().union(*every)
            return real(inputs)
        self.drawn = []
        batch = real(inputs)
        count = len(batch["completion_ids"])
        known = self.drawn if len(self.drawn) == count and not getattr(self.trainer, "tools", None) else None
        ranks = self.ranks.gather("a generation", (prompts, known, unpadded(batch), loss_tokens(batch)))
        sizes = [len(rows) for _, _, rows, _ in ranks]
        first, total = sum(sizes[: self.ranks.rank]), sum(sizes)
        if self.rewards is None or len(self.rewards) != total:
            return batch  # another trainer's rewards
        drawn = [rows for _, rows, _, _ in ranks if rows is not None]
        generation = {
            "number": self.generations,
            "drawn": list(chain.from_iterable(drawn)) if len(drawn) == self.ranks.size else None,
            "rewards": self.rewards,
            "prompts": list(chain.from_iterable(prompts for prompts, *_ in ranks)),
            "tokens": sum(tokens for *_, tokens in ranks),
            "completions": list(self.trainer._logs["completion"])[-total:],
            "version": self.trainer.state.global_step,
            "sampler": (self.engine and self.engine.synced) or (self.trainer.state.global_step, ""),
            "pad": self.tokenizer.pad_token_id,
        }
        rows = list(chain.from_iterable(rows for _, _, rows, _ in ranks))
        self._keep_generation(generation, rows, range(first, first + count))
        self._audit_draws(generation, first, count)
        first += self.generations * GENERATION_STRIDE
        self.generations += 1
        return batch | {ROW_KEY: torch.arange(first, first + count, device=batch["completion_ids"].device)}

    def _keep_generation(
        self, generation: dict[str, Any], rows: Sequence[tuple[Tensor, Tensor]], own: Sequence[int]
    ) -> None:
        """Store a generation, its fingerprint and its overlap with evaluation prompts.

        Args:
            generation: what rows of it share.
            rows: prompt and answer ids of all ranks.
            own: numbers of the rows of this rank.
        """
        number, prompts = generation["number"], generation["prompts"]
        self.usage_counter.add_generation(number, own)
        known = self.generations_by_number | {number: generation}
        self.generations_by_number = {each: known[each] for each in self.usage_counter.counts}
        self.facts["batch"] = self.batches.fact(
            [(f"{number}.{i}", torch.cat(row), len(row[0])) for i, row in enumerate(rows)],
            number,
            len(rows) // self.trainer.num_generations,
            list(map(digest_of, prompts)),
        )
        if self.eval_prompts:
            both = [f"{number}.{i}" for i, x in enumerate(prompts) if repr(x) in self.eval_prompts]
            shared = {"trained": both[:3], "count": len(both), "declared": False}
            self.facts["held_out"] = shared | {"tasks": len(self.eval_prompts)}

    def _audit_draws(self, generation: dict[str, Any], first: int, count: int) -> None:
        """Audit the samples of this rank with the weights that sampled them, before any weight changes."""
        drawn, elapsed = generation["drawn"], time.perf_counter() - self.started
        if drawn is None or not self.whole_weights or not self.draw_audit_budget.due(elapsed):
            return
        model = self.model
        key = self.trainer.args.seed, self.trainer.state.global_step
        model.eval()
        with self.draw_audit_budget.timed(), self.trainer.accelerator.autocast():
            own = Generation(drawn[first : first + count], self.rng_state)
            facts = draw_audit_facts(model, own, self.sampling_params, self.setup.stop_ids or (), key)
            if replay := facts.get("replay"):
                row, token = replay["where"]
                replay["where"] = f"{generation['number']}.{first + int(row)}", token
            self.facts["audit"] = facts
        model.train()

    def before_loss(self, real: Any, model: Any, inputs: Any) -> Any:
        """Record the inputs of a loss."""
        if ROW_KEY in inputs and model.training:
            present = {key: x for key, x in inputs.items() if x is not None}
            # a step may have parts of several generations
            generation = self.generations_by_number.get(int(inputs[ROW_KEY][0]) // GENERATION_STRIDE)
            if generation is not None:
                self.open_micro_batches.append(
                    RecordedMicroBatch(
                        present | {ROW_KEY: inputs[ROW_KEY] % GENERATION_STRIDE, GENERATION_KEY: generation}
                    )
                )
        return real(model, inputs)

    def after_logprobs(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the log-probabilities of a loss, with their gradient."""
        out = real(*args, **kwargs)
        if self.open_micro_batches:
            self.open_micro_batches[-1].keep_logprobs(*out[:2])
        return out

    def around_training_step(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep the micro-batches of a pass, and count the use of their rows."""
        before = len(self.micro_batches)
        out = super().around_training_step(real, *args, **kwargs)
        for each in self.micro_batches[before:]:
            self.usage_counter.add_micro_batch(
                each.inputs[GENERATION_KEY]["number"], each.inputs[ROW_KEY].tolist()
            )
        return out

    def _total(self, by_function: Tensor) -> Tensor:
        """Return the rewards of rows, [B] float64; NaN without a reward."""
        total = (by_function * self.trainer.reward_weights.to(by_function.device)).nansum(1)
        total[by_function.isnan().all(1)] = torch.nan
        return total.detach().cpu().double()
