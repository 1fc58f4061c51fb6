"""Methods that write what was trained: the model, its card, and both on the hub."""

import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from truing.config import Recipe
from truing.errors import RecordError
from truing.learner.checkpoint import CheckpointState
from truing.learner.restore import restore_policy
from truing.models.export import export
from truing.trl import card
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.processes import Accelerator
from truing.trl.models import source_of
from truing.trl.run_directory import best_checkpoint


class SavingMethods:
    """The part of a trainer that writes; of several processes the first writes, and others return at once."""

    accelerator: Accelerator
    args: TrlConfig
    output: Path
    processing_class: Any
    recipe: Recipe
    run: Path | None
    hub_model_id: str | None
    _given: Any  # the model that the script passed, or its name

    def save_model(self, output_dir: str | Path | None = None) -> None:
        """Write the trained model, or its adapter, with the tokenizer, to a folder that may exist."""
        if not self.accelerator.is_main_process:
            return
        folder = Path(output_dir) if output_dir is not None else self.output
        best = self._best()
        policy = restore_policy(self._trained(), best and best.name)
        new = folder / ".export"
        shutil.rmtree(new, ignore_errors=True)
        kind = "adapter" if self.recipe.lora else "merged"
        folder.mkdir(parents=True, exist_ok=True)
        export(policy.policy, policy.loaded, policy.sampling_params, new, kind)
        for path in new.iterdir():
            path.replace(folder / path.name)
        new.rmdir()
        self.processing_class.save_pretrained(folder)  # its own chat template, not that of text

    def create_model_card(self, model_name: str | None = None, dataset_name: str | None = None) -> None:
        """Write the model card to ``output_dir``: what was trained, evaluated and proven."""
        if not self.accelerator.is_main_process:
            return
        name = model_name or self.args.hub_model_id or self.output.resolve().name
        model = source_of(self._given)
        card.write_card(self._trained(), self.output, name, model, version("truing"), dataset_name)

    def push_to_hub(
        self, commit_message: str = "Model trained with Truing", dataset_name: str | None = None
    ) -> str | None:
        """Save the model and its card to ``output_dir`` and upload them; return the commit's address.

        Args:
            commit_message: of the commit.
            dataset_name: the data set on the hub, for the card.
        """
        if not self.accelerator.is_main_process:
            return None
        self.save_model()
        self.create_model_card(dataset_name=dataset_name)
        self.hub_model_id = self._create_repository()
        return card.push(self.output, self.args, self.hub_model_id, commit_message)

    def _create_repository(self) -> str:
        """Create the repository on the hub, if there is none; return its id."""
        return card.create_repository(self.args, self.output.resolve().name)

    def _best(self) -> CheckpointState | None:
        """Return the checkpoint with the trained model; None is the newest."""
        return best_checkpoint(self._trained()) if self.args.load_best_model_at_end else None

    def _trained(self) -> Path:
        if self.run is None:
            raise RecordError("nothing is trained yet", remedy="call train() first")
        return self.run
