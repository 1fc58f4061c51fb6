"""What a callback is passed beside arguments, state and control: the model, while it trains."""

from typing import Any, NoReturn

from truing.errors import InvalidValueError

REMEDIES = {
    "model": "it is passed from on_train_begin to on_train_end; with eval_on_start from the first step",
    "optimizer": "set learning_rate, weight_decay, max_grad_norm and the adam_… arguments",
    "lr_scheduler": "on_log gets learning_rate; set lr_scheduler_type and warmup_steps",
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


def callback_arguments(model: Any) -> dict[str, Any]:
    """Return the arguments of a callback; ``model`` is None before and after the training."""
    absent = {
        name: Absent(f"a callback uses {name}, which Truing does not pass here", remedy)
        for name, remedy in REMEDIES.items()
    }
    return absent if model is None else absent | {"model": model}
