"""TRL's trainers with a policy loss: GRPO and RLOO."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from transformers import PreTrainedModel

from truing.api import evaluate
from truing.errors import DataError, RecordError, RewardError
from truing.trl.arguments.batches import Batches, sampled_batches
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.configs import GRPOConfig, RLOOConfig
from truing.trl.arguments.named_keys import UNTRAINED
from truing.trl.arguments.objective import gates, grpo_tables, rloo_tables
from truing.trl.arguments.problems import Problems
from truing.trl.arguments.processes import RANKS
from truing.trl.arguments.recipe import engine_tables, eval_table, evaluates, merged, sampling_tables
from truing.trl.data.env import FactoryEnv, RowsEnv, env_of
from truing.trl.data.reward_models import RewardModel
from truing.trl.data.rewards import TAKEN, BatchFunction, Scorer, function_name, rewards_of
from truing.trl.data.rows import Row, check_last_role, columns_of, rows_of
from truing.trl.data.tools import factories_of, tools_given
from truing.trl.state import eval_metrics
from truing.trl.trainer import TrlTrainer

Tables = Callable[[TrlConfig, Batches, Problems], dict[str, Any]]

OPTIMIZERS = "Truing's optimizer is AdamW, set by the adam_… arguments"
QUANTIZATION = "Truing trains unquantized weights"
OWN_ROLLOUTS = "Truing samples by itself and records every token: use tools or environment_factory"
NO_PROMPT = ({"role": "user", "content": ""},)
"""The prompt of a row without one, whose environment adds the text."""


class PolicyTrainer(TrlTrainer):
    """What GRPO and RLOO share."""

    tables: ClassVar[Tables]

    def __init__(  # noqa: PLR0913 — TRL's signature
        self,
        model: Any,
        reward_funcs: Any = None,
        args: TrlConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        reward_processing_classes: Any = None,
        callbacks: Iterable[Any] | None = None,
        optimizers: Any = (None, None),
        quantization_config: Any = None,
        peft_config: Any = None,
        tools: Sequence[Callable[..., Any]] | None = None,
        rollout_func: Any = None,
        environment_factory: Any = None,
    ) -> None:
        """Build environment, rewards and recipe."""
        refused = {
            "optimizers": (optimizers, OPTIMIZERS),
            "quantization_config": (quantization_config, QUANTIZATION),
            "rollout_func": (rollout_func, OWN_ROLLOUTS),
        }
        super().__init__(model, args, refused)
        args, problems = self.args, self.problems
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        tools, factories = tools_given(tools or ()), factories_of(environment_factory)
        if train_dataset is None and factories:
            train_dataset = _generated_rows(args)
        rows: dict[Any, Sequence[Row]] = {"train": _rows(train_dataset, "train_dataset", bool(factories))}
        if eval_dataset is not None:
            rows["eval"] = _rows(eval_dataset, "eval_dataset", bool(factories))
        self.env = env = env_of(rows, factories, tools)
        is_text = self._check_rows(env, rows, has_tools=bool(tools or factories))
        self.eval_count = len(rows.get("eval", ()))
        batches = sampled_batches(args, len(rows["train"]), RANKS, problems)
        turns = None
        if tools or factories:
            iterations = getattr(args, "max_tool_calling_iterations", None)
            turns = args.max_completion_length if iterations is None else iterations + 1
        tables = merged(
            type(self).tables(args, batches, problems),
            gates(args, batches),
            sampling_tables(args, turns, problems),
            engine_tables(args, problems),
            {"eval": eval_table(args, batches, self.eval_count if evaluates(args) else 0, problems)},
        )
        self.scorer = self._set_rewards(env, reward_funcs, reward_processing_classes)
        for split, each in rows.items():
            env.notes = [*env.notes, *self.scorer.column_notes(each, f"{split}_dataset")]
        self._finish(
            batches,
            tables,
            text=is_text,
            processing_class=processing_class,
            callbacks=callbacks,
            peft_config=peft_config,
        )
        self.scorer.tokenizer = self.processing_class
        self.scorer.extras = {
            "trainer_state": self.state,
            "log_extra": self._log_extra,
            "log_metric": self._state.log_metric,
        }

    def _check_rows(self, env: RowsEnv, rows: Mapping[Any, Sequence[Row]], *, has_tools: bool) -> bool:
        """Return whether the prompts are text; add what Truing would train otherwise than TRL."""
        kinds = {prompt.is_text for prompt in env.prompts.values()}
        remedy = "make each prompt a list of messages"
        if len(kinds) > 1:
            reason = "prompts of one data set are text, and those of the other messages"
            self.problems.add("eval_dataset", "other prompts", reason, remedy)
        elif has_tools and kinds == {True}:
            self.problems.add("train_dataset", "prompts of text", "tools need messages", remedy)
        check_last_role([*env.prompts.values()])
        for split, each in rows.items():
            for name in sorted(TAKEN & {*columns_of(each)}):
                reason = f"reward functions get an argument {name}, which hides the column"
                self.problems.add(f"{split}_dataset", f"column {name}", reason, "rename or remove the column")
        return kinds == {True}

    def _set_rewards(self, env: RowsEnv, reward_funcs: Any, processing_classes: Any) -> Scorer:
        """Give an environment its rewards; return their scorer."""
        functions = [*reward_funcs] if isinstance(reward_funcs, list | tuple | set) else [reward_funcs]
        functions = [each for each in functions if each is not None]
        classes = processing_classes if isinstance(processing_classes, list) else [processing_classes]
        classes += [None] * (len(functions) - len(classes))
        weights = self.args.reward_weights or [1.0] * len(functions)
        if len(weights) != len(functions):
            self.problems.add(
                "reward_weights", weights, f"there are {len(functions)} reward functions", "give one for each"
            )
            weights = [1.0] * len(functions)
        template_kwargs = self.args.chat_template_kwargs or {}
        called = [
            RewardModel(each, tokenizer, template_kwargs) if isinstance(each, str | PreTrainedModel) else each
            for each, tokenizer in zip(functions, classes, strict=False)
        ]
        owners = _environment_rewards(env)
        if not called and not owners:
            raise RewardError(
                "there is no reward function", remedy="pass reward_funcs, or an environment with get_reward"
            )
        named = _with_names([*called, *owners.values()], [*map(function_name, called), *owners])
        scorer = Scorer(named, env)
        scorer.check_signatures()
        env.rewards = rewards_of(scorer, [*map(float, weights), *[1.0] * len(owners)])
        return scorer

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return the metrics of the newest weights on the trainer's ``eval_dataset``, with an interval."""
        if eval_dataset is not None or not self.eval_count:
            raise RecordError(
                "evaluate() evaluates the eval_dataset of the trainer",
                got="none" if eval_dataset is None else "another data set",
                remedy="pass it as eval_dataset to the trainer",
            )
        if self.run is None:
            self._write_inputs()
        samples = self.args.num_generations_eval or self.args.num_generations
        table = {"tasks": self.eval_count, "samples": samples, "temperature": self.args.temperature}
        overrides = [f"eval.{key}={json.dumps(value)}" for key, value in table.items()]
        target = self.run or self.output / UNTRAINED
        best = self._best() if self.run else None
        place = {"step": best.step, "stage": best.stage} if best else {}
        with self._naming_arguments():
            found = evaluate(target, overrides=overrides, **place, env=self.env, trust=True)  # its own run
        estimate = found.estimate()
        bounds = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
        metrics = eval_metrics(bounds, found.parts)
        return self._evaluated(
            {key.replace("eval_", f"{metric_key_prefix}_", 1): value for key, value in metrics.items()}
        )

    def _log_extra(self, column: str, values: Sequence[Any]) -> None:
        """Append a column of a reward function to ``log_extra.jsonl`` of the run."""
        if self.run is not None:
            with (self.run / "log_extra.jsonl").open("a", encoding="utf-8") as file:
                line = {"step": self.state.global_step, column: list(values)}
                file.write(json.dumps(line, default=str) + "\n")


class GRPOTrainer(PolicyTrainer):
    """TRL's ``GRPOTrainer`` on Truing's trainer."""

    config_class, algorithm = GRPOConfig, "GRPO"
    tables = staticmethod(grpo_tables)


class RLOOTrainer(PolicyTrainer):
    """TRL's ``RLOOTrainer`` on Truing's trainer."""

    config_class, algorithm = RLOOConfig, "RLOO"
    tables = staticmethod(rloo_tables)
    absent = ("tools", "rollout_func", "environment_factory")


def _generated_rows(args: TrlConfig) -> list[Row]:
    """Return a row per prompt of a training whose environment makes the prompts, as ``reset`` draws them."""
    if args.max_steps <= 0:
        raise DataError(
            "there is no train_dataset",
            expected="max_steps, where the environment makes the prompts",
            remedy="set max_steps, or pass train_dataset",
        )
    answers = args.generation_batch_size or args.per_device_train_batch_size * RANKS * (
        args.steps_per_generation or args.gradient_accumulation_steps
    )
    return [{} for _ in range(max(1, args.max_steps * answers // args.num_generations))]


def _rows(dataset: Any, argument: str, with_environment: bool) -> Sequence[Row]:
    """Return rows; one without a prompt gets an empty one if an environment adds the text."""
    rows = rows_of(dataset, argument)
    if not with_environment:
        return rows
    return [row if "prompt" in row else {**row, "prompt": NO_PROMPT} for row in rows]


def _environment_rewards(env: RowsEnv) -> Mapping[str, BatchFunction]:
    """Return a reward function for each class of environments that has ``get_reward``, by its name."""
    if not isinstance(env, FactoryEnv):
        return {}
    kinds = {type(sample) for sample in env.samples if hasattr(type(sample), "get_reward")}
    return {kind.__name__: _owned_reward(kind) for kind in kinds}


def _owned_reward(kind: type) -> BatchFunction:
    def get_reward(environments: Sequence[Any], **_: Any) -> list[Any]:
        return [each.get_reward() if type(each) is kind else None for each in environments]

    return get_reward


def _with_names(functions: Sequence[BatchFunction], names: Sequence[str]) -> dict[str, BatchFunction]:
    """Return functions by name; a later one of the same name gets a number."""
    named: dict[str, BatchFunction] = {}
    for function, name in zip(functions, names, strict=True):
        count = sum(name == other for other in names[: len(named)])
        named[f"{name}_{count + 1}" if count else name] = function
    return named
