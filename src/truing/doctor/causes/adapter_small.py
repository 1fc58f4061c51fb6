"""The adapter is small: it has few layers or a low rank, and the policy hardly moves.

Open: The recipe adapts some layers alone, or with a rank of 2 or less, and few answers changed.
Excluded: The policy moves.
"""

from truing.doctor.causes import steps_too_small
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History

LOW = 2
"""A rank."""

USUAL = {"lora.targets": "all-linear", "lora.rank": 16}


def small(history: History) -> dict[str, object]:
    """Return the keys that make the adapter small, by what they are; none of a log."""
    lora = history.run.recipe.lora if history.run else None
    if not lora or lora.adapter is not None:
        return {}
    keys: dict[str, object] = {}
    if lora.targets not in (None, "all-linear"):
        keys["lora.targets"] = lora.targets
    if lora.rank is not None and lora.rank <= LOW:
        keys["lora.rank"] = lora.rank
    return keys


def judge(history: History) -> Answer:
    """Return what is adapted, and how far the policy moved."""
    keys, moved = small(history), steps_too_small.judge(history)
    if moved.state not in ("found", "open"):
        return Answer(moved.state, moved.because)
    if not any("learning_rate" in change for change in moved.advice.changes):
        return Answer("cannot tell", f"something else holds the steps: {moved.because}")
    because = f"{' and '.join(f'{key} = {value}' for key, value in keys.items())}; {moved.because}"
    fix = train_again(history, {key: USUAL[key] for key in keys}, "with a larger adapter")
    outcomes = "if the reward rises, the adapter was too small; if hardly an answer changes, the rate is"
    return Answer("open", because, moved.explains, fix, outcomes)


ONE_LAYER = {"lora.targets": ["k_proj"], "lora.rank": 1}

CAUSE = Cause(
    title="the adapter is small",
    needs=("lr",),
    applies=lambda history: bool(small(history)),
    judge=judge,
    tier=1,
    found=(lambda: example_history({"kl_all/k3": 1e-7}, ONE_LAYER),),
    excluded=(
        lambda: example_history({"reward/mean": rising()}, ONE_LAYER),
        lambda: example_history({"kl_all/k3": 0.05}, ONE_LAYER),
    ),
)
