"""Methods that scripts call after a training: metrics and state as files, callbacks taken out again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from truing.errors import RecordError
from truing.trl.processes import Accelerator
from truing.trl.state import RunState

REMEDIES = {
    "predict": "evaluate() returns metrics; truing.record.RunReader(trainer.run) has every answer",
    "optimizer": "a callback gets it while the run trains",
    "lr_scheduler": "a callback gets it while the run trains",
    "get_train_dataloader": "trainer.env.tasks('train') are the tasks",
    "get_eval_dataloader": "trainer.env.tasks('eval') are the tasks",
    "tokenizer": "TRL renamed it: processing_class",
}
"""What to use instead of a part of transformers' ``Trainer`` that scripts use."""

OBJECTS = ("optimizer", "lr_scheduler", "callback_handler", "control", "model_wrapped", "data_collator")
"""Attributes that transformers' ``Trainer`` sets."""


class ScriptMethods:
    """The part of a trainer that needs nothing but its state and its folder."""

    accelerator: Accelerator
    output: Path
    _state: RunState

    def is_world_process_zero(self) -> bool:
        """Whether this is the first process."""
        return self.accelerator.is_main_process

    def remove_callback(self, callback: Any) -> None:
        """Remove a callback: the object, or all of a class."""
        self.pop_callback(callback)

    def pop_callback(self, callback: Any) -> Any:
        """Remove a callback and return it; of a class the first one, None if there is none."""
        is_class = isinstance(callback, type)
        found = [
            each
            for each in self._state.callbacks
            if (isinstance(each, callback) if is_class else each is callback)
        ]
        self._state.callbacks = [each for each in self._state.callbacks if each not in found]
        return found[0] if found else None

    def log_metrics(self, split: str, metrics: Mapping[str, float]) -> None:
        """Print metrics, sorted by name."""
        width = max(map(len, metrics), default=0)
        lines = [f"  {name:{width}} = {value:g}" for name, value in sorted(metrics.items())]
        self.accelerator.print("\n".join([f"***** {split} metrics *****", *lines]))

    def save_metrics(self, split: str, metrics: Mapping[str, float], combined: bool = True) -> None:
        """Write metrics to ``SPLIT_results.json``, and add them to ``all_results.json``."""
        if not self.accelerator.is_main_process:
            return
        self._write_json(f"{split}_results.json", metrics)
        everything = self.output / "all_results.json"
        if combined:
            known = json.loads(everything.read_text(encoding="utf-8")) if everything.exists() else {}
            self._write_json(everything.name, {**known, **metrics})

    def save_state(self) -> None:
        """Write ``trainer_state.json``: steps, epochs and the log."""
        if self.accelerator.is_main_process:
            self.output.mkdir(parents=True, exist_ok=True)
            self._state.state.save_to_json(str(self.output / "trainer_state.json"))

    def _write_json(self, name: str, content: Mapping[str, float]) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=4, sort_keys=True)
        try:
            (self.output / name).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise RecordError(f"cannot write {self.output / name}", got=error) from error

    def __getattr__(self, name: str) -> NoReturn:
        """Name what a trainer of transformers has and Truing's does not."""
        from transformers import Trainer

        own = f"{type(self).__name__} of truing.trl has no {name!r}"
        if name.startswith("_") or not (name in OBJECTS or name in REMEDIES or hasattr(Trainer, name)):
            raise AttributeError(own)
        remedy = REMEDIES.get(name, "docs/trl.md lists what it has")
        raise AttributeError(f"{own}: it does not run transformers' Trainer; {remedy}")
