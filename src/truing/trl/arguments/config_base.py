"""What TRL's configs share: unknown names and values of the wrong type are errors with a remedy."""

import dataclasses
import json
from typing import Any, get_args, get_origin, get_type_hints

from truing.errors import RecipeError
from truing.trl.arguments.names import check_names


@dataclasses.dataclass(repr=False)
class TrlConfig:
    """The base of the configs."""

    output_dir: str | None = None

    def __new__(cls, *_: Any, **arguments: Any) -> "TrlConfig":
        """Make a config; raise one error for all unknown names."""
        check_names(cls.__name__, arguments, cls.defaults())
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Read JSON of a command line, and check types."""
        self.output_dir = "trainer_output" if self.output_dir is None else str(self.output_dir)
        for name, hint in get_type_hints(type(self)).items():
            value, kinds = getattr(self, name), _kinds(hint)
            if isinstance(value, str) and dict in kinds and value.startswith("{"):
                setattr(self, name, json.loads(value))
            elif not _fits(value, kinds):
                raise RecipeError(
                    f"{type(self).__name__}: {name} has the wrong type",
                    got=f"{value!r}, {type(value).__name__}",
                    expected=" or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds),
                    remedy="leave out the quotes; YAML reads 1e-6 as text, and 1.0e-6 as a number"
                    * isinstance(value, str),
                )

    def __repr__(self) -> str:
        changed = (f"{name}={value!r}" for name, value in self.changed().items())
        return f"{type(self).__name__}({', '.join(changed)})"

    def __getattr__(self, name: str) -> Any:
        # functions of this package read arguments that only some configs have
        raise AttributeError(f"{type(self).__name__} has no argument {name!r}")

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return all arguments with their defaults."""
        return {
            field.name: field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
            for field in dataclasses.fields(cls)
        }

    def changed(self) -> dict[str, Any]:
        """Return the arguments that differ from TRL's defaults."""
        defaults = self.defaults()
        return {name: value for name, value in self.to_dict().items() if value != defaults[name]}

    def to_dict(self) -> dict[str, Any]:
        """Return all arguments."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types of a hint, without their parameters."""
    union = get_args(hint) if get_origin(hint) not in (list, dict, tuple) else ()
    return tuple(get_origin(kind) or kind for kind in union or (hint,))


def _fits(value: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether a value can be of one of the types: a text is not a number, and a number no list."""
    if Any in kinds or value is None:
        return True
    if isinstance(value, str):
        return str in kinds
    return isinstance(value, list | tuple) if list in kinds and str not in kinds else True
