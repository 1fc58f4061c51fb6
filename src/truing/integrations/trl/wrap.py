"""Methods of a trainer that an audit wraps."""

from collections.abc import Callable
from typing import Any


def wrapped(
    trainer: Any, name: str, wrapper: Callable[..., Any], called: set[str] | None = None
) -> Callable[..., Any]:
    """Return a method that passes the trainer's own method to ``wrapper``; looked up at each call.

    Args:
        trainer: the object with the method.
        name: of the method.
        wrapper: gets the own method and its arguments.
        called: gets the name once the method is called.
    """
    own = trainer.__dict__.get(name)

    def method(*args: Any, **kwargs: Any) -> Any:
        if called is not None:
            called.add(name)
        return wrapper(own or getattr(type(trainer), name).__get__(trainer), *args, **kwargs)

    return method
