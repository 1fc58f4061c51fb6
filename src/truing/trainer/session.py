"""The session of a run: its policy, and the sampler that has the policy's weights."""

from dataclasses import dataclass

from truing.chat.apply_template import prompt_date
from truing.config import Recipe
from truing.distributed.ranks import ONE, Ranks
from truing.engines.base import Publish, Receipt
from truing.envs.base import Env
from truing.metrics.definitions import check_metric_names
from truing.models.load import LoadedModel
from truing.models.load_policy import load_policy
from truing.models.policy import Policy, open_policy
from truing.rollouts.run_tasks import run_tasks, with_eval_tasks
from truing.rollouts.sampler import Sampler, open_sampler
from truing.trainer.recorded_recipe import with_date
from truing.trainer.threads import set_threads
from truing.utils.memory import keep_freed_memory
from truing.utils.phase_clock import phase


@dataclass(frozen=True, eq=False)
class Session:
    """Opened once per run by ``open_session``; only weights change.

    A guard may change the recipe of a stage: what samples keeps the keys that it was opened with.
    """

    recipe: Recipe
    policy: Policy
    sampler: Sampler

    def publish(self, version: int) -> Receipt:
        """Give the engine the policy's weights, with their version and digest; return the receipt."""
        with phase("sync"):
            self.policy.gather_weights()
            return self.sampler.publish(self.policy.whole_module, version, self.policy.digest())

    def prepare_publication(self, version: int) -> Publish:
        """Copy the policy's weights; return what publishes them, while the policy moves on."""
        with phase("sync"):
            self.policy.gather_weights()
            return self.sampler.prepare_publication(self.policy.whole_module, version, self.policy.digest())

    def take_incidents(self) -> list[str]:
        """Return what happened to the engines since the last call, a sentence each."""
        ranks = self.policy.ranks  # those of this thread: the sampler's may be collecting
        return [
            f"rank {rank} {text}" if ranks.size > 1 else text
            for rank, texts in enumerate(ranks.gather("incidents", self.sampler.engine.take_incidents()))
            for text in texts
        ]

    def close(self) -> None:
        """Close the sampler."""
        self.sampler.close()


def open_session(recipe: Recipe, env: Env, ranks: Ranks = ONE, threads: int | None = None) -> Session:
    """Load the model, add the adapter, check environment and engines; return the session.

    ``threads`` is the number of a run that is continued; a new one uses the recipe's, or chooses.
    """
    recipe, _ = with_eval_tasks(recipe, env)
    splits = run_tasks(recipe, env)  # before a model is loaded
    check_metric_names(f"reward_part/{name}" for name in env.rewards)
    keep_freed_memory()
    loaded, module = load_policy(recipe, ranks)
    set_threads(recipe, module, threads, ranks.size)
    sampling_params = recipe.sampling.to_params(loaded.stop_ids)
    sampling_params.max_prompt_length(loaded.context_length)  # raises if no token could be sampled
    policy = open_policy(recipe, loaded, module, ranks)
    recipe = _with_date(recipe, loaded, ranks)
    return Session(recipe, policy, open_sampler(recipe, policy, env, splits))


def _with_date(recipe: Recipe, loaded: LoadedModel, ranks: Ranks) -> Recipe:
    """Return a recipe with the date of its prompts, if the chat template writes one; the first rank's."""
    date = ranks.gather("the date of prompts", prompt_date(loaded.tokenizer, recipe.chat.date))[0]
    return with_date(recipe, date)
