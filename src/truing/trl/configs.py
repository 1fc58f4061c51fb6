"""TRL's configs: arguments by TRL's names, with TRL's defaults. They need no installed TRL."""

from typing import Any, ClassVar

from truing.errors import RecipeError
from truing.trl.fields import CONFIG_DEFAULTS
from truing.utils.format import did_you_mean


class TrlConfig:
    """The arguments of a trainer, as attributes; see docs/trl.md for the meaning of each."""

    config_name: ClassVar[str]

    def __init__(self, output_dir: str | None = None, **arguments: Any) -> None:
        defaults = CONFIG_DEFAULTS[self.config_name]
        if unknown := [name for name in arguments if name not in defaults]:
            raise RecipeError(
                f"{self.config_name} has no argument {', '.join(map(repr, unknown))}",
                got=", ".join(f"{name}={arguments[name]!r}" for name in unknown),
                expected="an argument of TRL 1.16",
                remedy=" ".join(filter(None, (did_you_mean(name, defaults) for name in unknown))),
            )
        self.__dict__ |= defaults | arguments
        self.output_dir = "trainer_output" if output_dir is None else output_dir

    def __repr__(self) -> str:
        changed = (f"{name}={value!r}" for name, value in self.changed().items())
        return f"{self.config_name}({', '.join(changed)})"

    def __getattr__(self, name: str) -> Any:
        # the attributes are set from a table, so a type checker does not know them
        raise AttributeError(f"{self.config_name} has no argument {name!r}")

    def changed(self) -> dict[str, Any]:
        """Return the arguments that differ from TRL's defaults."""
        defaults = CONFIG_DEFAULTS[self.config_name]
        return {name: value for name, value in self.to_dict().items() if value != defaults[name]}

    def to_dict(self) -> dict[str, Any]:
        """Return all arguments."""
        return {name: getattr(self, name) for name in CONFIG_DEFAULTS[self.config_name]}


class GRPOConfig(TrlConfig):
    """Arguments of ``GRPOTrainer``."""

    config_name = "GRPOConfig"


class RLOOConfig(TrlConfig):
    """Arguments of ``RLOOTrainer``."""

    config_name = "RLOOConfig"


class SFTConfig(TrlConfig):
    """Arguments of ``SFTTrainer``."""

    config_name = "SFTConfig"
