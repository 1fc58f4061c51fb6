"""Write a model as a folder."""

from pathlib import Path

from transformers import PreTrainedModel

from truing.models.progress_bars import no_progress_bars
from truing.utils.file_mode import share_weights


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write the config and the weights of a new model, in a process of any rank, without progress bars."""
    # transformers writes on the first rank alone; the rank that builds a model may be another one
    model.should_save_on_this_rank = lambda is_main_process: is_main_process
    with no_progress_bars():
        model.save_pretrained(folder)
    share_weights(*folder.glob("*.safetensors"))
