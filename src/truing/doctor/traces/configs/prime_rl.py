"""prime-rl's configuration, ``rl.toml``: https://github.com/PrimeIntellect-ai/prime-rl (559b44772).

Its loss leaves out tokens by a difference of probabilities, for which a trace has no word.
"""

from collections.abc import Callable
from typing import Any

TRAINER = "prime-rl"
KEYS = ("orchestrator", "trainer")


def settings(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings in the words of a trace; ``get`` returns the value at a dotted key, or None."""
    return {
        **_advantage(get),
        "mask": "sampled",
        "aggregation": "token_mean",
        "surrogate": f"other: {get('trainer.loss.type') or 'the default loss'}",
        "group_size": get("orchestrator.group_size"),
        "inner_steps": 1,
        "on_policy": False,
        "learning_rate": get("trainer.optim.lr"),
        "max_grad_norm": get("trainer.optim.max_norm"),
    }


def _advantage(get: Callable[[str], Any]) -> dict[str, Any]:
    algorithm = get("orchestrator.algo.type")
    if algorithm not in (None, "grpo") or get("orchestrator.algo.length_penalty"):
        return {"advantage": f"other: {algorithm or 'a length penalty'}"}
    return {"algo": "grpo", "advantage": "none", "advantage_eps": 0.0} if algorithm else {"algo": "grpo"}
