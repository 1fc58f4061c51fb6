"""The sampler of a run: engine, environment, tasks, and all that makes rollouts of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import nn

from truing.chat import CallGrammars, Chat, make_chat
from truing.config import EpisodeConfig, Recipe
from truing.distributed.ranks import Ranks
from truing.engines.base import Engine, Publish, Receipt, joint_receipt
from truing.engines.open_engine import open_engine
from truing.envs.base import Env, PromptKey, Split, prompt_key
from truing.envs.program_env import ProgramEnv
from truing.models.forward.score import causal_model
from truing.models.policy import Policy
from truing.rollouts.collect import collect
from truing.rollouts.endpoint import ProgramEndpoint, open_endpoint
from truing.rollouts.episode_context import EndedFn, EpisodeContext
from truing.rollouts.grade_log import GradeLog
from truing.rollouts.prompt_limit import with_prompt_limit
from truing.rollouts.run_tasks import loss_count, run_tasks
from truing.rollouts.turn_sources import DemonstrationTurns, PolicyTurns, forced_prefix_ids
from truing.rollouts.workers import EnvWorkers, open_workers
from truing.types.rollout import RolloutGroup, Task
from truing.types.sampling_params import RAW, SamplingParams
from truing.utils.rng import permutation
from truing.utils.workspaces import use_workspaces_root, workspaces_root


@dataclass(frozen=True, eq=False)
class Sampler:
    """Opened once per run by ``open_sampler``; only the engine's weights change."""

    seed: int
    episode: EpisodeConfig
    engine: Engine
    env: Env
    train_tasks: Sequence[Task]
    eval_tasks: Sequence[Task]
    loss_tasks: Sequence[Task]  # evaluation tasks whose demonstrations SFT measures its loss on
    sampling_params: SamplingParams
    chat: Chat
    grammars: CallGrammars | None
    workers: EnvWorkers
    grades: GradeLog
    endpoint: ProgramEndpoint | None  # of an environment of programs
    kept: int  # collections whose workspaces stay: rollouts may be ahead, and an evaluation comes between
    context_length: int  # of the model; the engine's may be shorter
    ranks: Ranks  # with a group of their own, since a second thread may sample

    def publish(self, policy: nn.Module, version: int, digest: str) -> Receipt:
        """Give each rank's engine whole weights, with their version and digest; return the joint receipt."""
        return self._published(lambda: self.engine.publish(policy, version, digest))

    def prepare_publication(self, policy: nn.Module, version: int, digest: str) -> Publish:
        """Return what publishes whole weights, while the policy moves on if they are a server's."""
        return partial(self._published, self.engine.prepare(policy, version, digest))

    def _published(self, publish: Publish) -> Receipt:
        """Let each rank's engine take a publication; return the receipt of all."""
        return joint_receipt(self.ranks.gather_results("the publication", publish))

    def close(self) -> None:
        """Close the engine, and end the workers and the endpoint."""
        self.workers.close()
        if self.endpoint is not None:
            self.endpoint.close()
        self.engine.close()

    def collect_rollouts(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling_params: SamplingParams,
        key: tuple[object, ...],
        force_rate: float = 0.0,
        on_ended: EndedFn | None = None,
    ) -> list[RolloutGroup]:
        """Collect graded rollouts; a share ``force_rate`` of turns begins with the forced prefix."""
        prefix = forced_prefix_ids(self.chat, self.episode.forced_prefix)
        try:
            return self._collect(
                tasks,
                group_size=group_size,
                context=self.episode_context(sampling_params),
                turn_source=PolicyTurns(self.engine, sampling_params, prefix, force_rate, self.grammars),
                grade=self.grades.grade,
                key=(self.seed, *key),
                on_ended=on_ended,
            )
        finally:
            self.engine.reset_prefix_cache()

    def _collect(self, tasks: Sequence[Task], **options: Any) -> list[RolloutGroup]:
        """Collect this rank's share of the tasks, and exchange the groups: every rank returns all of them."""
        self.ranks.check_same(
            {
                "the tasks of a step": [task.task_id for task in tasks],
                "the key of random numbers": options["key"],
            },
            remedy="tasks must follow from the recipe alone: look for random numbers without a key",
        )
        indices = range(self.ranks.rank, len(tasks), self.ranks.size)
        shares = self.ranks.gather_results(
            "the exchange of rollouts",
            lambda: collect([tasks[index] for index in indices], indices=indices, **options),
        )
        return [shares[index % self.ranks.size][index // self.ranks.size] for index in range(len(tasks))]

    def sampled_by(self, group_id: str) -> int:
        """Return the rank that sampled a group; its id ends with the index of its task."""
        return int(group_id.rpartition("/")[2]) % self.ranks.size

    def play_demonstrations(self, tasks: Sequence[Task], key: tuple[object, ...]) -> list[RolloutGroup]:
        """Return the tasks' demonstrations, run in their environments."""
        return self._collect(
            tasks,
            group_size=1,
            context=self.episode_context(RAW),
            turn_source=DemonstrationTurns(self.chat),
            grade=None,
            key=(self.seed, *key),
        )

    def episode_context(self, sampling_params: SamplingParams) -> EpisodeContext:
        """Return what episodes need besides tasks."""
        return EpisodeContext(
            self.chat,
            self.env,
            sampling_params,
            self.episode,
            self.engine.context_length,
            self.workers,
            self.endpoint,
            self.kept,
        )

    @cached_property
    def copies_of_task(self) -> Counter[PromptKey]:
        """The number of training tasks with each prompt."""
        return Counter(map(prompt_key, self.train_tasks))

    def tasks_of_step(self, stage: str, step: int, count: int) -> list[Task]:
        """Return the training tasks of a step; each epoch is a new shuffle by seed, stage and epoch."""
        total = len(self.train_tasks)
        chosen = []
        for position in range(step * count, (step + 1) * count):
            order = permutation(total, self.seed, stage, "epoch", position // total)
            chosen.append(self.train_tasks[order[position % total]])
        return chosen


def open_sampler(recipe: Recipe, policy: Policy, env: Env, splits: Mapping[Split, Sequence[Task]]) -> Sampler:
    """Start the workers, open and prove the engine of each rank, and return the sampler.

    Args:
        recipe: with the date of its prompts.
        policy: whose whole weights the engine samples with at first.
        env: the environment.
        splits: its tasks, of ``run_tasks``.
    """
    loaded, ranks = policy.loaded, policy.ranks
    chat = make_chat(loaded.tokenizer, loaded.stop_ids, **recipe.chat.model_dump())
    if (limit := recipe.episode.max_prompt_tokens) is not None:
        env = with_prompt_limit(env, chat, limit)
        splits = run_tasks(recipe, env)  # truncated prompts may be equal
    config = causal_model(policy.module).config.get_text_config()
    # tokenizers may have fewer ids than the model
    grammars = None if recipe.episode.grammar == "off" else CallGrammars(chat, config.vocab_size)
    with ExitStack() as opened:
        workers = open_workers(env, recipe.episode, [*splits["train"], *splits["eval"]])
        opened.callback(workers.close)
        endpoint = None
        if isinstance(env, ProgramEnv):
            _share_workspaces(ranks)
            endpoint = opened.enter_context(closing(open_endpoint()))
        engine = ranks.together(
            "opening the engine",
            lambda: opened.enter_context(closing(open_engine(recipe, loaded, policy.whole_module, ranks))),
        )
        sampler = Sampler(
            seed=recipe.seed,
            episode=recipe.episode,
            engine=engine,
            env=env,
            train_tasks=splits["train"],
            eval_tasks=splits["eval"][: recipe.eval.tasks],
            loss_tasks=splits["eval"][: loss_count(recipe)],
            sampling_params=recipe.sampling.to_params(loaded.stop_ids),
            chat=chat,
            grammars=grammars,
            workers=workers,
            grades=GradeLog(workers.grade),
            endpoint=endpoint,
            kept=recipe.engine.ahead + 3,
            context_length=loaded.context_length,
            ranks=ranks.with_own_group(),
        )
        opened.pop_all()  # the sampler closes them
    return sampler


def _share_workspaces(ranks: Ranks) -> None:
    """Let programs of all ranks work in one folder, since any rank may grade a rollout again.

    A rank on another machine keeps a folder of its own.
    """
    first = Path(
        ranks.gather("the folder of workspaces", str(workspaces_root()) if ranks.rank == 0 else "")[0]
    )
    if ranks.rank != 0 and first.is_dir():
        use_workspaces_root(first)
