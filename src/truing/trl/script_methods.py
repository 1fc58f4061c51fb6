"""Methods that scripts call after a training: metrics and state as files, callbacks taken out again."""

from typing import Any, NoReturn

from transformers.trainer_pt_utils import log_metrics, save_metrics, save_state

from truing.errors import InvalidValueError
from truing.trl.arguments.processes import Accelerator
from truing.trl.state import RunState

REMEDIES = {
    "predict": "evaluate() returns metrics; truing.record.RunReader(trainer.run) has every answer",
    "optimizer": "each step sets it by the arguments of the config",
    "lr_scheduler": "state.log_history has each learning_rate",
    "get_train_dataloader": "trainer.env.tasks('train') are the tasks",
    "get_eval_dataloader": "trainer.env.tasks('eval') are the tasks",
    "tokenizer": "TRL renamed it: processing_class",
}
"""What to use instead of a part of transformers' ``Trainer`` that scripts use."""

OBJECTS = ("optimizer", "lr_scheduler", "callback_handler", "control", "model_wrapped", "data_collator")
"""Attributes that transformers' ``Trainer`` sets."""


HOOKS = (
    "_calculate_rewards", "_compute_loss", "_generate", "_generate_and_score_completions",
    "_get_per_token_logps_and_entropies", "_prepare_dataset",
)  # fmt: skip
"""Methods of TRL's trainers that scripts override, beside those of transformers' ``Trainer``."""


def check_overridden(kind: type, own: type) -> None:
    """Raise if a subclass of a trainer overrides a method that Truing never calls.

    Args:
        kind: the class of a trainer.
        own: Truing's class that all trainers have.
    """
    from transformers import Trainer

    added = {
        name for each in kind.__mro__ if not each.__module__.startswith("truing.") for name in vars(each)
    }
    never = sorted(name for name in added if _is_hook(name, Trainer) and not hasattr(own, name))
    if never:
        raise InvalidValueError(
            f"{kind.__name__} overrides methods that Truing never calls",
            got=", ".join(never),
            expected="train, evaluate, save_model and other methods of `truing explain trl`",
            remedy="set the objective by loss_type or in a recipe, and log in a callback",
        )


def _is_hook(name: str, trainer: type) -> bool:
    """Whether transformers' or TRL's trainer calls a method of a name."""
    return name in HOOKS or (callable(getattr(trainer, name, None)) and not hasattr(object, name))


class ScriptMethods:
    """The part of a trainer that needs nothing but its state; three methods are those of transformers."""

    accelerator: Accelerator
    log_metrics, save_metrics, save_state = log_metrics, save_metrics, save_state
    _state: RunState
    _built = False  # whether the recipe is made of the arguments

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; raise if it is one that only has an effect before the recipe is made."""
        if self._built and (name in ("args", "train_dataset", "eval_dataset") or name in OBJECTS):
            raise InvalidValueError(
                f"{name} of a {type(self).__name__} cannot be changed",
                expected=f"{name} as it was passed: the recipe is made of it",
                remedy="make a new trainer",
            )
        super().__setattr__(name, value)

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

    def __getattr__(self, name: str) -> NoReturn:
        """Name what a trainer of transformers has and Truing's does not."""
        from transformers import Trainer

        own = f"{type(self).__name__} of truing.trl has no {name!r}"
        if name.startswith("_") or not (name in OBJECTS or name in REMEDIES or hasattr(Trainer, name)):
            raise AttributeError(own)
        remedy = REMEDIES.get(name, "`truing explain trl` lists what it has")
        raise AttributeError(f"{own}: it does not run transformers' Trainer; {remedy}")
