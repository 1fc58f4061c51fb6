"""Recorded reasons why no step moved the policy."""

import math
from collections.abc import Iterator

from truing.doctor.hypotheses.hypothesis import Hypothesis
from truing.doctor.hypotheses.run_history import RunHistory
from truing.doctor.hypotheses.test_cost import retrain_command
from truing.utils.format import with_count

SKIPPED_LABEL = "held_back"
"""The loss label of a step without an optimizer step."""

MASK_CAUSES = {
    "masked/cut": ('their rollouts were cut, and gates.truncated is "mask"', "gates.truncated=keep"),
    "masked/forced_action": (
        'their turns began with forced tokens, and episode.mask is "action"',
        "episode.mask=sampled",
    ),
    "masked/not_kept": ("their rollouts failed, were alone in their group, or were not kept", ""),
    "masked/structure": (
        'they are scaffolding of calls, and episode.mask is "no_structure"',
        "episode.mask=sampled",
    ),
}
"""Reasons for untrained tokens: the text, and the change that trains them."""


def no_movement(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield the cause if no step of the stage moved a weight."""
    yield from _nothing_trained(history)
    yield from _skipped(history)
    yield from _no_rate(history)
    yield from _no_gradient(history)


def _nothing_trained(history: RunHistory) -> Iterator[Hypothesis]:
    trained = history.series("tokens/trained")
    if not trained or any(trained):
        return
    shares = {name: history.last(name) for name in MASK_CAUSES if history.last(name) > 0}
    cause = max(shares, key=lambda name: shares[name], default="")
    why, change = MASK_CAUSES.get(cause, ("the record does not say why", ""))
    if cause == "masked/cut":  # cut answers teach nothing useful: raise the limit first
        change = f"sampling.max_new_tokens={2 * history.recipe.sampling.max_new_tokens}"
    share = f"{shares[cause]:.0%} of the sampled tokens: " if cause else ""
    yield Hypothesis(
        "no token is trained",
        "found",
        f"0 tokens were trained in {with_count(len(trained), 'step')}; {share}{why}",
        retrain_command(history, change) if change else "",
        changes=(change,) if change else (),
    )


def _skipped(history: RunHistory) -> Iterator[Hypothesis]:
    skipped = [row for row in history.steps if row.loss_label == SKIPPED_LABEL]
    trained = sum(history.series("tokens/trained"))
    if len(skipped) < len(history.steps) / 2 or not trained:
        return
    cap = history.recipe.kl.cap
    change = f"kl.cap={10 * cap:g}" if cap is not None else ""
    by = f"kl.cap = {cap:g}" if cap is not None else "a gate of the recipe"
    kl = history.last("kl_trained/k3")
    known = "" if math.isnan(kl) else f"; the KL is {kl:.3g} nats per token"
    yield Hypothesis(
        "optimizer steps are skipped",
        "found",
        f"{len(skipped)} of {with_count(len(history.steps), 'step')} were skipped by {by}{known}",
        retrain_command(history, change) if change else "",
        changes=(change,) if change else (),
    )


def _no_rate(history: RunHistory) -> Iterator[Hypothesis]:
    rates, declared = history.series("lr"), history.recipe.stage(history.stage).learning_rate
    if not rates:
        return
    warming = history.recipe.optimizer.warmup_steps
    if max(rates) == 0:
        yield Hypothesis("the learning rate is 0", "found", f"in all of {with_count(len(rates), 'step')}")
    elif max(rates) < declared / 2 and warming > len(rates):
        change = "optimizer.warmup_steps=0"
        yield Hypothesis(
            "the learning rate is still warming up",
            "found",
            f"it reached {max(rates):.2g} of {declared:.2g} in {with_count(len(rates), 'step')};"
            f" optimizer.warmup_steps is {warming}",
            retrain_command(history, change),
            changes=(change,),
        )


def _no_gradient(history: RunHistory) -> Iterator[Hypothesis]:
    norms, trained = history.series("grad/norm"), any(history.series("tokens/trained"))
    tied = history.last("group/zero_variance_share")
    if len(norms) < 2 or any(norms) or not trained or tied == 1:  # groups without signal have no gradient
        return
    spread = history.last("advantage/max_abs")
    known = "" if math.isnan(spread) else f", with advantages of up to {spread:.3g}"
    yield Hypothesis(
        "the gradient is 0",
        "found",
        f"its norm is exactly 0 in all of {with_count(len(norms), 'step')}{known}",
    )
