"""What a callback is passed beside arguments, state and control: model, optimizer, rates."""

from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from truing.errors import InvalidValueError
from truing.learner.learner import Learner

WHILE_TRAINING = "it is passed from on_train_begin to on_train_end; with eval_on_start from the first step"

REMEDIES = {
    "model": WHILE_TRAINING,
    "optimizer": WHILE_TRAINING,
    "lr_scheduler": f"{WHILE_TRAINING}; args.learning_rate is the peak",
    "train_dataloader": "Truing draws tasks by `seed`: state.max_steps and state.num_train_epochs count them",
    "eval_dataloader": "Truing evaluates tasks: on_evaluate gets the metrics",
}

"""What to do instead of using an object that a callback does not get."""


class Absent:
    """Stands for an object that is not there; any use of it is an error that says so."""

    def __init__(self, what: str, remedy: str) -> None:
        self._what, self._remedy = what, remedy

    def _refuse(self, *_: Any) -> NoReturn:
        raise InvalidValueError(
            self._what,
            expected="what `truing explain trl` lists of callbacks",
            remedy=self._remedy,
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python itself asks, as copy and pickle do
            raise AttributeError(name)
        self._refuse()

    __len__ = __iter__ = __getitem__ = __call__ = _refuse


class LearningRates:
    """TRL's ``lr_scheduler`` as far as a callback reads it; the rates follow from the recipe."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def get_last_lr(self) -> list[float]:
        """Return the rates of the newest step, by parameter group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def __getattr__(self, name: str) -> NoReturn:
        raise InvalidValueError(
            f"a callback uses lr_scheduler.{name}",
            expected="get_last_lr(): each step sets its rate from the recipe, without an object of torch's",
            remedy="set learning_rate, lr_scheduler_type and warmup_steps",
        )


def callback_arguments(learner: Learner | None) -> dict[str, Any]:
    """Return the arguments of a callback; before and after the training most are absent."""
    given: dict[str, Any] = {
        name: Absent(f"a callback uses {name}, which Truing does not pass here", remedy)
        for name, remedy in REMEDIES.items()
    }
    if learner is not None:
        optimizer = learner.optimizer
        given |= {"model": learner.model, "optimizer": optimizer, "lr_scheduler": LearningRates(optimizer)}
    return given


def optimizer_settings(learner: Learner | None) -> list[Mapping[str, Any]]:
    """Return the settings of the optimizer, by parameter group."""
    groups = learner.optimizer.param_groups if learner is not None else []
    return [{key: value for key, value in group.items() if key != "params"} for group in groups]


def check_settings(callback: object, learner: Learner | None, before: list[Mapping[str, Any]]) -> None:
    """Raise if a callback has changed the optimizer: the next step would set it again, without a word."""
    after = optimizer_settings(learner)
    changed = [
        f"{key} = {new[key]!r}"
        for old, new in zip(before, after, strict=True)
        for key in new
        if new[key] != old.get(key)
    ]
    if changed:
        raise InvalidValueError(
            f"the callback {type(callback).__name__} has changed the optimizer",
            got=", ".join(changed),
            expected="an optimizer that follows the recipe: each step sets it again",
            remedy="set learning_rate, lr_scheduler_type, warmup_steps and the adam_… arguments",
        )
