"""TRL's ``SFTTrainer`` on Truing's trainer."""

from collections.abc import Iterable, Sequence
from typing import Any

from truing.errors import DataError, RecordError
from truing.trl.batches import row_batches
from truing.trl.configs import SFTConfig
from truing.trl.data import Row, rows_of
from truing.trl.demonstrations import (
    DemonstrationsEnv,
    check_rows,
    conversation,
    is_plain_text,
    most_turns,
)
from truing.trl.policy_trainers import OPTIMIZERS, QUANTIZATION
from truing.trl.processes import RANKS
from truing.trl.recipe import LONGEST_REPLY
from truing.trl.text_rows import text_demonstrations
from truing.trl.trainer import TrlTrainer

LOSSES = ("nll", "chunked_nll")
"""Values of ``loss_type`` with the same loss; they differ in memory."""

NO_COLLATOR = "rows are demonstrations, and Truing makes batches itself"


class SFTTrainer(TrlTrainer):
    """Supervised fine-tuning on completions, on the assistant's turns, or on plain text."""

    config_class, algorithm = SFTConfig, "SFT"

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
            "eval_dataset": (
                eval_dataset,
                "Truing evaluates answers by rewards, and SFT has none",
            ),
            "compute_loss_func": (compute_loss_func, "the loss is the one that the doctor recomputes"),
            "compute_metrics": (compute_metrics, "metrics are those of docs/metrics.md"),
            "optimizers": (optimizers, OPTIMIZERS),
            "optimizer_cls_and_kwargs": (optimizer_cls_and_kwargs, OPTIMIZERS),
            "preprocess_logits_for_metrics": (preprocess_logits_for_metrics, "metrics are Truing's own"),
            "quantization_config": (quantization_config, QUANTIZATION),
            "formatting_func": (
                formatting_func,
                "map rows to prompt and completion, or messages",
            ),
        }
        super().__init__(model, args, refused)
        args = self.args
        if args.loss_type not in LOSSES:
            self.problems.add("loss_type", args.loss_type, "Truing has no such loss", 'use "nll"')
        if args.chat_template_path and not str(args.chat_template_path).endswith(".jinja"):
            self.problems.add(
                "chat_template_path",
                args.chat_template_path,
                "Truing reads Jinja files",
                "name a .jinja file",
            )
        rows = rows_of(train_dataset, "train_dataset")
        is_plain = is_plain_text(rows, args.dataset_text_field)
        is_text = is_plain or check_rows(rows, args.assistant_only_loss, args.completion_only_loss)
        batches = row_batches(args, len(rows), RANKS, self.problems)
        tables: dict[str, Any] = {
            "stages": ["sft"],
            "sft": {"steps": batches.steps, "batch_size": batches.rows, "learning_rate": args.learning_rate},
            "eval": {"tasks": 0},
            "episode": {"max_turns": most_turns(rows), "max_reply_chars": LONGEST_REPLY},
        }
        if args.chat_template_path:
            tables["model"] = {"chat_template": str(args.chat_template_path)}
        self._finish(
            batches,
            tables,
            text=is_text,
            processing_class=processing_class,
            callbacks=callbacks,
            peft_config=peft_config,
        )
        if is_plain:
            rows = text_demonstrations(rows, args.dataset_text_field, self.processing_class)
        self.env = DemonstrationsEnv(rows)
        if args.max_length is not None:
            self._check_lengths(rows, args.max_length)

    def _check_lengths(self, rows: Sequence[Row], longest: int) -> None:
        """Raise if a row has more tokens than ``max_length``: TRL would cut it, Truing trains it whole."""
        template = {"chat_template": self._template} if self._template is not None else {}
        texts = [
            self.processing_class.apply_chat_template(
                [*conversation(row)], tools=row.get("tools") or None, tokenize=False, **template
            )
            for row in rows
        ]
        lengths = [len(ids) for ids in self.processing_class(texts, add_special_tokens=False)["input_ids"]]
        long = [index for index, length in enumerate(lengths) if length > longest]
        if long:
            raise DataError(
                f"rows of train_dataset have more tokens than max_length={longest}",
                got=f"{len(long)} rows, among them {', '.join(map(str, long[:5]))}; the longest has"
                f" {max(lengths)} tokens",
                remedy="shorten or drop them, or set max_length=None, which trains them whole",
            )

    def _eval_table(self) -> dict[str, Any]:
        raise RecordError(
            "SFT has no eval_dataset with rewards",
            remedy="evaluate the saved model with GRPOTrainer(...).evaluate(), or truing.evaluate",
        )
