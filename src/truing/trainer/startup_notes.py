"""Notes at the start of a run: no fault, but worth knowing."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from truing.checks.contradictions import contradictions
from truing.config import PolicyStage, Recipe
from truing.models.adapter_config import read_config, saved_template
from truing.models.forward.hidden_states import why_no_tree
from truing.models.forward.route_support import is_moe, why_no_replay
from truing.models.forward.score import causal_model
from truing.models.new_tokens import NEW, new_tokens_note, untrained_rows
from truing.models.saved_adapter import has_base
from truing.rollouts.prompt_limit import truncation_notes
from truing.trainer.session import Session
from truing.utils.cores import usable_cores
from truing.utils.format import with_count

OF_POLICY_LOSS = ("kl", "reference", "entropy", "bootstrap", "gates", "correction")
"""Tables of the recipe that change a policy loss, or which tokens are under it."""


def startup_notes(session: Session) -> Iterator[str]:
    """Yield the notes, a sentence each."""
    yield from _chosen_threads(session)
    yield from _chosen_replicas(session)
    yield from _adapter_start(session)
    yield from _new_tokens(session)
    yield from _no_prefix_tree(session)
    yield from _no_routes(session)
    if session.recipe.guard and session.recipe.checkpoint_every in ("auto", 0):
        yield (
            "a rollback of the guard returns to the start of the stage: the times of other checkpoints differ"
            " from run to run; with a number, checkpoint_every makes regular ones that it may return to"
        )
    if not session.recipe.episode.lock_step:
        yield "episode.lock_step is false: the last bits of log-probabilities may differ from run to run"
    yield from _tables_without_effect(session.recipe)
    yield from contradictions(session.sampler.env, session.sampler.train_tasks)
    yield from _unbounded_bootstrap(session.recipe)
    if (limit := session.recipe.episode.max_prompt_tokens) is not None:
        yield from truncation_notes(session.sampler.train_tasks, "training", limit)
        yield from truncation_notes(session.sampler.eval_tasks, "evaluation", limit)


def _chosen_threads(session: Session) -> Iterator[str]:
    """Yield the number of threads that was chosen for a model that could use more."""
    threads, cores = torch.get_num_threads(), usable_cores()
    chosen = session.recipe.model.threads is None and session.policy.ranks.size == 1
    if chosen and causal_model(session.policy.module).device.type == "cpu" and threads < cores:
        yield (
            f"{with_count(threads, 'CPU thread')} on {cores} cores: for a small model more are slower;"
            " model.threads sets the number"
        )


def _chosen_replicas(session: Session) -> Iterator[str]:
    """Yield how weights are placed over ranks, if that was chosen."""
    ranks = session.policy.ranks
    if ranks.size > 1 and session.recipe.trainer.replicate == "auto":
        held = "holds all weights" if ranks.replicas == ranks.size else "holds a shard of the weights"
        yield f"{with_count(ranks.size, 'rank')}: each {held}; trainer.replicate sets it"


def _adapter_start(session: Session) -> Iterator[str]:
    """Yield what a run that starts from a saved adapter starts from, and what differs from its training."""
    lora = session.recipe.lora
    if not lora or lora.adapter is None:
        return
    config = read_config(lora.adapter)
    yield (
        f"the policy starts from the adapter {lora.adapter} (rank {config.r}, alpha {config.lora_alpha:g}):"
        " it is the reference of the first stage, and the evaluation `base`"
    )
    if not config.base_model_name_or_path:
        yield f"the adapter {lora.adapter} does not name the model that it was trained on"
    if session.recipe.model.quantization and not has_base(lora.adapter):
        yield (
            f"the adapter {lora.adapter} does not record its base: unless it was trained on one in"
            f" {session.recipe.model.quantization}, the policy is another one than the adapter's own"
        )
    if config.lora_dropout != lora.dropout:
        yield f"the adapter was saved with dropout {config.lora_dropout:g}; lora.dropout is {lora.dropout:g}"
    if saved_template(lora.adapter) not in (None, session.policy.loaded.tokenizer.chat_template):
        yield (
            f"the adapter {lora.adapter} has another chat template than the model: if it was trained with"
            " that one, set model.chat_template"
        )


SEARCHED_TASKS = 1000
"""Tasks whose texts are searched for new tokens."""


def _new_tokens(session: Session) -> Iterator[str]:
    """Yield the added tokens in the data whose embeddings look untrained, if only an adapter is trained."""
    known = any(note.startswith(NEW) for note in session.sampler.env.notes)
    if not session.recipe.lora or session.policy.ranks.size > 1 or known:
        return
    added = cast("PreTrainedTokenizerFast", session.policy.loaded.tokenizer).get_added_vocab()
    texts = [f"{task.messages}{task.demonstration}" for task in session.sampler.train_tasks[:SEARCHED_TASKS]]
    used = {index: token for token, index in added.items() if any(token in text for text in texts)}
    weight_VD = cast("Tensor", causal_model(session.policy.module).get_input_embeddings().weight)
    if new := untrained_rows(weight_VD, used):
        yield new_tokens_note(used[index] for index in new)


def _no_prefix_tree(session: Session) -> Iterator[str]:
    """Yield why shared prefixes are computed once per sample, if the model needs that."""
    for longest, kind in ((0, "samples"), (session.policy.loaded.context_length, "longer samples")):
        if reason := why_no_tree(causal_model(session.policy.module), longest):
            yield f"{reason}: the shared prefix of {kind} is computed for each of them"
            return


def _no_routes(session: Session) -> Iterator[str]:
    """Yield why a mixture of experts is trained without the routes that its sampler took."""
    causal = causal_model(session.policy.module)
    if not is_moe(causal):
        return
    if reason := why_no_replay(causal):
        yield f"{reason}: sampler and trainer select experts apart, and near ties they differ"
    elif not session.sampler.engine.returns_routes:
        yield (
            "the engine returns no expert routes: sampler and trainer select experts apart, and near ties"
            " they differ; mismatch/routes_rounding is the share for which rounding alone decides"
        )


def _tables_without_effect(recipe: Recipe) -> Iterator[str]:
    """Yield a note if tables belong to a policy loss, and no stage has one."""
    if any(isinstance(recipe.stage(name), PolicyStage) for name in recipe.stages):
        return
    set_ = [f"[{name}]" for name in OF_POLICY_LOSS if getattr(recipe, name).model_fields_set]
    if set_:
        yield f"{', '.join(set_)}: no effect, since no stage of {', '.join(recipe.stages)} has a policy loss"


def _unbounded_bootstrap(recipe: Recipe) -> Iterator[str]:
    """Yield a note if nothing corrects the critic's error about truncated rollouts."""
    cfg = recipe.ppo
    if "ppo" in recipe.stages and cfg and cfg.truncation == "bootstrap" and cfg.gamma == 1:
        yield (
            "the return of a truncated rollout is the critic's value of its last state, and at ppo.gamma = 1"
            " nothing corrects that value: the policy may learn to be truncated. If the limit is part of the"
            ' task, set ppo.truncation = "end", which uses the reward of the rollout'
        )
