"""An audit of TRL's ``SFTTrainer``."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from truing.integrations.trl.base import Audit
from truing.integrations.trl.demonstrations import (
    IDS_KEY,
    LENGTHS_KEY,
    ORIGINS_KEY,
    TEXT_COLUMNS,
    RecordingCollator,
)
from truing.integrations.trl.example_counts import Example, digest_of
from truing.integrations.trl.micro_batch import RecordedMicroBatch
from truing.integrations.trl.rank_parts import RankPart
from truing.integrations.trl.rows import Rows, joined
from truing.integrations.trl.setup import setup_of_sft
from truing.integrations.trl.sft_rows import rows_of_demonstrations
from truing.types.sampling_params import RAW


class SftAudit(Audit):
    """Audits a trainer on demonstrations.

    The collator adds its examples to each batch; the inputs of the loss are compared with them.
    """

    stage, example_column = "sft", "input_ids"
    required_attributes = ("_prepare_dataset", "completion_only_loss", "compute_loss")
    wrapped_methods: ClassVar[dict[str, str]] = {
        "compute_loss": "before_loss",
        "training_step": "around_training_step",
    }

    def __init__(self, trainer: Any, **options: Any) -> None:
        super().__init__(trainer, setup_of_sft(trainer), RAW, **options)
        trainer._set_signature_columns_if_needed()
        own = tuple(trainer._signature_columns)
        added = {*TEXT_COLUMNS, trainer.args.dataset_text_field} - set(own)
        trainer._signature_columns = [*own, *sorted(added)]
        unused = added if trainer.args.remove_unused_columns else ()
        trainer.data_collator = RecordingCollator(trainer, self.tokenizer, unused)
        trainer.model.register_forward_hook(self.after_forward)
        self._backbone().register_forward_hook(self.after_backbone)

    def rows(self, done: int) -> Rows:
        """Return the rows of this rank since the last step."""

        def earlier(count: int) -> int:
            return sum(self.ranks.gather("the number of rows", count)[: self.ranks.rank])

        return rows_of_demonstrations(done, self.micro_batches, self.trainer.args.max_length, earlier)

    def examples(self, rows: Rows) -> dict[str, Example]:
        """Return the example of each row; none at an epoch's end, which accelerate fills with the first."""
        if self.trainer.accelerator.gradient_state.end_of_dataloader:
            return {}
        examples = [ids[ids >= 0].tolist() for micro in self.micro_batches for ids in micro.inputs[IDS_KEY]]
        names = [row.sample_id for row in rows.samples]
        if len(names) != len(examples):
            names = [f"packed row {i} of rank {self.ranks.rank}" for i in range(len(examples))]
        return {name: Example(name, 0, digest_of(ids)) for name, ids in zip(names, examples, strict=True)}

    def facts_of_all(self, parts: Sequence[RankPart]) -> dict[str, Any]:
        """Return the fingerprint of the batch of all ranks."""
        rows = joined(part.rows for part in parts)
        # some examples have no prompt, so the whole of each identifies it
        named = [
            (row.sample_id, streams["token_ids"], len(streams["token_ids"]))
            for row, streams in zip(rows.samples, rows.streams, strict=True)
        ]
        number = self.trainer.state.global_step - 1
        tasks = [digest_of(ids.tolist()) for _, ids, _ in named]
        return {"batch": self.batches.fact(named, number, len(named), tasks)}

    def before_loss(self, real: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Remove what the collator added from the inputs of a loss, and record the micro-batch."""
        examples = {name: inputs.pop(name) for name in (IDS_KEY, ORIGINS_KEY, LENGTHS_KEY) if name in inputs}
        if model.training and examples and "labels" in inputs:
            self.open_micro_batches.append(RecordedMicroBatch(dict(inputs) | examples))
        return real(model, inputs, *args, **kwargs)

    def after_forward(self, model: Any, inputs: Any, output: Any) -> None:
        """Record the log-probabilities of labels from TRL's own head, with their gradient."""
        logprob = output.get("log_probs") if isinstance(output, Mapping) else None
        if self.open_micro_batches and logprob is not None:
            self.open_micro_batches[-1].keep_logprobs(logprob, output.get("entropy"))

    def after_backbone(self, model: Any, inputs: Any, output: Any) -> None:
        """Record the inputs of the head; their gradient shows which tokens the loss reads."""
        states = getattr(output, "last_hidden_state", None)
        if self.open_micro_batches and states is not None:
            self.open_micro_batches[-1].keep_hidden_states(states)

    def _backbone(self) -> Any:
        """Return the model without its head, and below an adapter."""
        model = self.model
        return (model.get_base_model() if hasattr(model, "get_base_model") else model).base_model
