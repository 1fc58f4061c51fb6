"""TRL's ``SFTTrainer`` on Truing's trainer."""

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from truing.chat.apply_template import prompt_date
from truing.config import resolve
from truing.envs.base import Split
from truing.envs.conversations import Conversation, row_notes
from truing.errors import DataError, RecordError
from truing.record import RunReader
from truing.trainer.demonstration_loss import demonstration_loss
from truing.trainer.recorded_recipe import with_date
from truing.trl.arguments.batches import Batches, row_batches
from truing.trl.arguments.configs import SFTConfig
from truing.trl.arguments.processes import RANKS
from truing.trl.arguments.recipe import LONGEST_REPLY, evaluates, evaluation_every
from truing.trl.data.demonstrations import DemonstrationsEnv, demonstrated_turns
from truing.trl.data.sft_rows import SftRows, sft_rows
from truing.trl.data.texts import CUTS, demonstrated_texts, dropped_note, rendered
from truing.trl.policy_trainers import OPTIMIZERS, QUANTIZATION
from truing.trl.trainer import TrlTrainer
from truing.utils.regular_files import read_regular_text

LOSSES = ("nll", "chunked_nll")
"""Values of ``loss_type`` with the same loss; they differ in memory."""

NO_COLLATOR = "rows are demonstrations, and Truing makes batches itself"


class SFTTrainer(TrlTrainer):
    """Supervised fine-tuning on completions, turns of the assistant, or whole texts and conversations."""

    config_class, algorithm = SFTConfig, "SFT"
    args: SFTConfig

    def __init__(  # noqa: PLR0913 — TRL's signature
        self,
        model: Any,
        args: SFTConfig | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        compute_loss_func: Any = None,
        compute_metrics: Any = None,
        callbacks: Iterable[Any] | None = None,
        optimizers: Any = (None, None),
        optimizer_cls_and_kwargs: Any = None,
        preprocess_logits_for_metrics: Any = None,
        quantization_config: Any = None,
        peft_config: Any = None,
        formatting_func: Any = None,
    ) -> None:
        refused = {
            "data_collator": (data_collator, NO_COLLATOR),
            "compute_loss_func": (compute_loss_func, "the loss is the one that the doctor recomputes"),
            "compute_metrics": (compute_metrics, "metrics are those of `truing explain metrics`"),
            "optimizers": (optimizers, OPTIMIZERS),
            "optimizer_cls_and_kwargs": (optimizer_cls_and_kwargs, OPTIMIZERS),
            "preprocess_logits_for_metrics": (preprocess_logits_for_metrics, "metrics are Truing's own"),
            "quantization_config": (quantization_config, QUANTIZATION),
        }
        super().__init__(model, args, refused)
        config = self.args
        self.problems.check_choice("loss_type", config.loss_type, LOSSES, "Truing has no such loss")
        if config.chat_template_path and not self._is_template(config.chat_template_path):
            reason = "Truing reads Jinja files"
            self.problems.add("chat_template_path", config.chat_template_path, reason, "name a .jinja file")
        if config.max_length is not None and config.max_length < 2:
            reason = "a row needs a context and a token to train"
            self.problems.add("max_length", config.max_length, reason, "set more tokens, or None")
        self.problems.check_choice("truncation_mode", config.truncation_mode, CUTS, "TRL has no such mode")
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self._formatting_func = formatting_func
        self._train = sft_rows(train_dataset, "train_dataset", config, formatting_func)
        self._eval = None if eval_dataset is None else self._eval_rows(eval_dataset)
        turns = max(map(_most_turns, [self._train, *([self._eval] if self._eval else ())]))
        batches = row_batches(config, len(self._train.conversations), RANKS, self.problems)
        tables: dict[str, Any] = {
            "stages": ["sft"],
            "sft": {
                "steps": batches.steps,
                "batch_size": batches.rows,
                "learning_rate": config.learning_rate,
                **self._loss_table(batches),
            },
            "eval": {"tasks": 0, "base": config.eval_on_start},
            "episode": {"max_turns": turns},
        }
        tables["episode"]["max_reply_chars"] = LONGEST_REPLY
        if config.chat_template_path:
            tables["model"] = {"chat_template": str(config.chat_template_path)}
        self._finish(
            batches,
            tables,
            text=self._train.text,
            processing_class=processing_class,
            callbacks=callbacks,
            peft_config=peft_config,
        )
        if config.chat_template_path:  # as TRL: it is saved with the model
            template = read_regular_text(Path(config.chat_template_path))
            self.processing_class.chat_template = template
        self._use_date(prompt_date(self.processing_class, None) if not self._train.text else None)

    def _use_date(self, date: datetime.date | None) -> None:
        """Write a date into the rows for which the chat template asks it."""
        self.recipe = with_date(self.recipe, date)
        self.env = self._env_of(self._eval)

    def _continue(self, run: Path) -> None:
        """Write the date of the run that is continued: its texts are those of its first day."""
        date = resolve(RunReader(run).run_fact("recipe")).chat.date
        if date is not None and date != self.recipe.chat.date:
            self._use_date(date)

    @staticmethod
    def _is_template(path: str) -> bool:
        """Whether a path is a Jinja file."""
        return str(path).endswith(".jinja") and Path(path).is_file()

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return the loss of the newest weights on ``eval_dataset``; by default on the trainer's."""
        rows = self._eval if eval_dataset is None else self._eval_rows(eval_dataset)
        if rows is None:
            raise RecordError("there is no eval_dataset", remedy="pass one to evaluate() or to the trainer")
        if self.run is None:
            self._write_inputs()
        recipe = self.recipe.model_copy(
            update={
                "sft": self.recipe.stage("sft").model_copy(update={"eval_tasks": len(rows.conversations)})
            }
        )
        best = self._best() if self.run else None
        measured = demonstration_loss(recipe, self._env_of(rows), self.run, best and best.name)
        return self._evaluated({f"{metric_key_prefix}_loss": measured.loss})

    def _eval_rows(self, dataset: Any) -> SftRows:
        """Return the rows of an evaluation data set; raise unless they are trained as the others are."""
        rows = sft_rows(dataset, "eval_dataset", self.args, self._formatting_func)
        if (rows.whole, rows.text) != (self._train.whole, self._train.text):
            raise DataError(
                "train_dataset and eval_dataset have rows of different kinds",
                got=f"{_kind(rows)} in eval_dataset, {_kind(self._train)} in train_dataset",
                expected="rows of one kind",
            )
        return rows

    def _loss_table(self, batches: Batches) -> dict[str, int]:
        """Return the keys of ``[sft]`` that say when the loss on ``eval_dataset`` is measured."""
        if not evaluates(self.args):
            return {}
        if self._eval is None:
            self.problems.add(
                "eval_strategy",
                self.args.eval_strategy,
                "there is no eval_dataset",
                "pass it, or leave it out",
            )
            return {}
        return {
            "eval_tasks": len(self._eval.conversations),
            "eval_every": evaluation_every(self.args, batches),
        }

    def _env_of(self, evaluated: SftRows | None) -> DemonstrationsEnv:
        """Return the environment of the training rows and of rows to measure the loss on."""
        env = DemonstrationsEnv()
        splits: dict[Split, SftRows] = {"train": self._train}
        if evaluated is not None:
            splits["eval"] = evaluated
        for split, rows in splits.items():
            dataset, tokenizer = f"{split}_dataset", self.processing_class
            if rows.whole:
                texts = demonstrated_texts(rows.conversations, self.args, tokenizer, self.recipe.chat.date)
                env.add_texts(split, texts, tokenizer)
                env.notes = [*env.notes, *row_notes(rows.conversations, dataset)]
                if note := dropped_note(rows.conversations, tokenizer, dataset):
                    env.notes = [*env.notes, note]
            else:
                self._check_lengths(rows.conversations, dataset)
                env.add_turns(split, rows.conversations, dataset, tokenizer.eos_token)
            env.notes = [*env.notes, *rows.notes]
        return env

    def _check_lengths(self, conversations: Sequence[Conversation], dataset: str) -> None:
        """Raise if a row has more tokens than ``max_length``: TRL would cut it, Truing trains it whole."""
        longest = self.args.max_length
        if longest is None:
            return
        texts = [rendered(each, self.processing_class, template=self._template) for each in conversations]
        lengths = [len(ids) for ids in self.processing_class(texts, add_special_tokens=False)["input_ids"]]
        long = [index for index, length in enumerate(lengths) if length > longest]
        if long:
            raise DataError(
                f"rows of {dataset} have more tokens than max_length={longest}",
                got=f"{len(long)} rows, among them {', '.join(map(str, long[:5]))}; the longest has"
                f" {max(lengths)} tokens",
                remedy="shorten or drop them, or set max_length=None, which trains them whole",
            )


def _most_turns(rows: SftRows) -> int:
    """Return the most trained turns of a row; a whole text counts as one."""
    return 1 if rows.whole else max(len(demonstrated_turns(each).turns) for each in rows.conversations)


def _kind(rows: SftRows) -> str:
    """Return what is trained of rows, in words."""
    return f"{'whole' if rows.whole else 'turns of'} {'texts' if rows.text else 'conversations'}"
