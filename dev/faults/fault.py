"""A planted fault, and its plant: a replacement of a trainer's function during a run."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from truing.rewards import RewardFn
from truing.trainer.preflight import random_reward

Plant = Callable[[], AbstractContextManager[None]]

NO_SYNC = "nothing to plant: with an adapter in bfloat16 the sampler computes with the trainer's own weights"


@dataclass(frozen=True)
class Fault:
    """A bug, the recipe that shows it, and the rules that name its cause: one must fire.

    The trainer may refuse to train with the bug instead; then its error has the words ``refusal``, if there
    are any.
    """

    name: str
    numbers: tuple[int, ...]  # in the catalogue (docs/detection-matrix.md)
    what: str  # one sentence
    plant: Plant
    expected: tuple[str, ...]  # codes: any of them names the cause
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the recipe, by dotted key
    reward: RewardFn | None = random_reward  # None is the environment's own
    healthy: bool = False
    refusal: str = ""
    seen: tuple[str, ...] = ()  # issues of other projects that report it
    on_ranks: tuple[int, ...] | None = None  # of a run of several ranks, those with the bug; None is all
    not_in_bfloat16: str = ""  # why a run that computes in bfloat16 has nothing to prove; "" if it has
    resumed_after: int = 0  # steps of the last stage, after which the run is resumed with the bug; 0: never

    @property
    def ranks(self) -> int:
        """Return the number of processes of its run."""
        return self.changes.get("trainer.ranks", 1)


@contextmanager
def patched(target: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace ``module:name`` or ``module:Class.name`` by ``make(real)``, and restore it at the end."""
    module, _, path = target.partition(":")
    *outer, name = path.split(".")
    owner: Any = import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    real = owner.__dict__[name]
    replacement = make(real)
    _check_parameters(replacement, real, target)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, real)


def _check_parameters(replacement: Any, real: Any, target: str) -> None:
    """Raise unless a function takes the parameters of the function that it replaces."""
    if not (inspect.isfunction(replacement) and inspect.isfunction(real)):
        return
    parameters = inspect.signature(real).parameters.values()
    named = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
    placed = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    try:
        inspect.signature(replacement).bind(*placed, **named)
    except TypeError as error:
        error.add_note(f"what replaces {target} does not take its parameters")
        raise
