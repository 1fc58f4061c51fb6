"""What a run tells at its start: no fault, and still worth knowing."""

import os
from collections.abc import Iterator

from truing.config import Recipe
from truing.config.other_trainers import ENVIRONMENT_VARIABLES
from truing.learner.prompt_limit import truncation_notes
from truing.learner.session import Session
from truing.models.forward.hidden_states import why_no_tree
from truing.models.forward.score import causal_model


def startup_notes(session: Session) -> Iterator[str]:
    """A sentence each."""
    yield from _no_prefix_tree(session)
    yield from _unbounded_bootstrap(session.recipe)
    if (limit := session.recipe.episode.max_prompt_tokens) is not None:
        yield from truncation_notes(session.train_tasks, "training", limit)
        yield from truncation_notes(session.eval_tasks, "evaluation", limit)
    yield from (
        f"{name} is set: {answer}" for name, answer in ENVIRONMENT_VARIABLES.items() if name in os.environ
    )


def _no_prefix_tree(session: Session) -> Iterator[str]:
    """What this model cannot do, and what that costs."""
    for longest, which in ((0, "samples"), (session.loaded.context_length, "longer samples")):
        if why := why_no_tree(causal_model(session.policy), longest):
            yield f"{why}: what {which} have in common is computed for each of them"
            return


def _unbounded_bootstrap(recipe: Recipe) -> Iterator[str]:
    """Where a critic's error about cut attempts would never be found out."""
    cfg = recipe.ppo
    if "ppo" in recipe.stages and cfg and cfg.truncation == "bootstrap" and cfg.gamma == 1:
        yield (
            "a cut attempt is worth what the critic expects of its last state, and at ppo.gamma = 1 nothing"
            " corrects that: a policy may learn to be cut. Where the limit is part of the task,"
            ' ppo.truncation = "end" counts what the attempt was graded'
        )
