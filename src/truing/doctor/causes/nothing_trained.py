"""No token is trained.

Found: In at least half of the steps no token is under the loss.
Excluded: Tokens are trained in most steps.
"""

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History
from truing.doctor.causes.steps_skipped import SKIPPED_LABEL
from truing.utils.format import with_count

MANY = 0.5
"""Of the steps."""

REASONS = {
    "masked/cut": 'their rollouts were cut, and gates.truncated is "mask"',
    "masked/forced_action": 'their turns began with forced tokens, and episode.mask is "action"',
    "masked/not_kept": "their rollouts failed, were alone in their group, or were not kept",
    "masked/structure": 'they are syntax of calls, and episode.mask is "no_structure"',
}
"""Shares of the sampled tokens that are not trained, by reason."""


def judge(history: History) -> Answer:
    """Return how many steps train nothing, and the most frequent reason."""
    trained = history.series("tokens/trained")
    idle = trained.count(0)
    share = idle / len(trained)
    held = sum(row.loss_label == SKIPPED_LABEL for row in history.counted)
    if held >= MANY * len(history.counted):
        because = (
            f"{held} of {with_count(len(history.counted), 'step')} did not reach the optimizer, for a gate"
        )
        return Answer("cannot tell", because)
    if share < MANY:
        count = f"tokens were trained in {len(trained) - idle - held} of {with_count(len(trained), 'step')}"
        left_out = history.mean("gate/ratio_masked_share")
        return Answer("ruled out", count + (f", without {left_out:.0%} for a gate" if left_out > 0 else ""))
    shares = {name: history.late(name) for name in REASONS if history.late(name) > 0}
    reason = max(shares, key=lambda name: shares[name], default="")
    because = f"0 tokens were trained in {idle} of {with_count(len(trained), 'step')}"
    because += f"; {shares[reason]:.0%} of the sampled tokens: {REASONS[reason]}" if reason else ""
    changes: dict[str, object] = {}
    if reason in ("masked/forced_action", "masked/structure"):
        changes = {"episode.mask": "sampled"}
    elif reason == "masked/cut":  # cut answers teach nothing useful: raise the limit first
        changes = {"sampling.max_new_tokens": 2 * history.facts.recipe.sampling.max_new_tokens}
    fix = train_again(history, changes, "with these tokens under the loss") if changes else Advice("")
    return Answer("found", because, share, fix)


CAUSE = Cause(
    title="no token is trained",
    needs=("tokens/trained",),
    judge=judge,
    rules=("MSK009",),
    found=(lambda: example_history({"tokens/trained": 0.0, "masked/cut": 1.0}, {"gates.truncated": "mask"}),),
    excluded=(lambda: example_history({"masked/cut": 0.3}, {"gates.truncated": "mask"}),),
)
