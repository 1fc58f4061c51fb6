"""What a run tells at its start: no fault, and still worth knowing."""

import os
from collections.abc import Iterator

from truing.config import Recipe
from truing.config.other_trainers import ENVIRONMENT
from truing.learner.prompt_limit import cut_notes
from truing.learner.session import Session
from truing.models.forward.hidden_states import no_tree
from truing.models.forward.score import causal_model


def notes(session: Session) -> Iterator[str]:
    """A sentence each."""
    yield from _slower(session)
    yield from _unbounded(session.recipe)
    if (limit := session.recipe.episode.max_prompt_tokens) is not None:
        yield from cut_notes(session.train_tasks, "training", limit)
        yield from cut_notes(session.eval_tasks, "evaluation", limit)
    yield from (f"{name} is set: {answer}" for name, answer in ENVIRONMENT.items() if name in os.environ)


def _slower(session: Session) -> Iterator[str]:
    """What this model cannot do, and what that costs."""
    for longest, which in ((0, "samples"), (session.loaded.context_length, "longer samples")):
        if why := no_tree(causal_model(session.policy), longest):
            yield f"{why}: what {which} have in common is computed for each of them"
            return


def _unbounded(recipe: Recipe) -> Iterator[str]:
    """Where a critic's error about cut attempts would never be found out."""
    cfg = recipe.ppo
    if "ppo" in recipe.stages and cfg and cfg.truncation == "bootstrap" and cfg.gamma == 1:
        yield (
            "a cut attempt is worth what the critic expects of its last state, and at ppo.gamma = 1 nothing"
            " corrects that: a policy may learn to be cut. Where the limit is part of the task,"
            ' ppo.truncation = "end" counts what the attempt was graded'
        )
