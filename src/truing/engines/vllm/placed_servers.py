"""What a launcher tells a rank of the vLLM servers that it placed, by variables of its environment."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truing.config import Recipe
from truing.errors import RecipeError

VARIABLE = "TRUING_PLACED_ENGINES"


@dataclass(frozen=True)
class PlacedEngines:
    """The addresses of all servers, in the place of ``engine.servers``, and a folder that they see."""

    servers: Sequence[str] = ()
    exchange: Path | None = None

    def variables(self) -> Mapping[str, str]:
        """Return the environment variables of a rank."""
        return {VARIABLE: json.dumps({"servers": list(self.servers), "exchange": str(self.exchange)})}


def placed_engines() -> PlacedEngines:
    """Return what the launcher placed; without one nothing."""
    if VARIABLE not in os.environ:
        return PlacedEngines()
    facts = json.loads(os.environ[VARIABLE])
    return PlacedEngines(facts["servers"], Path(facts["exchange"]))


def check_placed(recipe: Recipe) -> None:
    """Raise if a recipe wants servers placed, and no launcher did."""
    if recipe.engine.count and not placed_engines().servers:
        raise RecipeError(
            "only Ray places engines",
            got=f"engine.count = {recipe.engine.count}, without --ray",
            remedy="`truing train RECIPE --ray ADDRESS`; or engine.count = 0, with engine.servers or without",
        )
