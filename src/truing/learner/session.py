"""The session: model, sampler, environment, tasks and sampling parameters of a run."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from truing.analysis.evaluation import Evaluation
from truing.chat import CallGrammars, Chat, make_chat
from truing.chat.apply_template import prompt_date
from truing.config import Recipe
from truing.distributed.ranks import ONE, Ranks
from truing.distributed.sharded_tensors import whole
from truing.distributed.sharding import device_of
from truing.engines.base import Engine, Publish, Receipt, joint_receipt
from truing.engines.open_engine import open_engine
from truing.envs.base import Env, PromptKey, checked_tasks, prompt_key
from truing.errors import DataError
from truing.learner.eval_tasks import with_eval_tasks
from truing.learner.evaluate import evaluate
from truing.learner.prompt_limit import with_prompt_limit
from truing.learner.restore import as_it_computes, dtype_of_masters, load_policy, with_date
from truing.learner.threads import set_threads
from truing.metrics.definitions import check_metric_names
from truing.models.digest import quick_sum
from truing.models.forward.score import causal_model
from truing.models.forward_proof import prove_forward
from truing.models.load import LoadedModel
from truing.models.lora import trainable_parameters
from truing.models.precision import sharing_weights, with_weights_in
from truing.models.sharded import shard_model
from truing.rollouts.collect import EndedFn, EpisodeContext, collect
from truing.rollouts.turn_sources import DemonstrationTurns, PolicyTurns, forced_prefix_ids
from truing.rollouts.workers import EnvWorkers, open_workers
from truing.types.rollout import RolloutGroup, Task
from truing.types.sampling_params import RAW, SamplingParams
from truing.utils.memory import keep_freed_memory
from truing.utils.phase_clock import phase
from truing.utils.rng import permutation

MAIN_MEMORY = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Session:
    """Opened once per run by ``open_session``; only the policy's weights change."""

    recipe: Recipe
    loaded: LoadedModel
    policy: nn.Module  # trained; sharded over ranks
    # with whole weights, of the last ``gather_weights``, in the dtype that computes; or the policy itself.
    # Beside FSDP2 and ``engine.kind = "vllm"`` it is in main memory
    whole_policy: nn.Module
    ranks: Ranks
    sampling_ranks: Ranks  # the same, for the thread that samples
    parameters: Mapping[str, nn.Parameter]  # trained
    engine: Engine
    env: Env
    train_tasks: Sequence[Task]
    eval_tasks: Sequence[Task]
    loss_tasks: Sequence[Task]  # evaluation tasks whose demonstrations SFT measures its loss on
    sampling_params: SamplingParams
    chat: Chat
    grammars: CallGrammars | None
    workers: EnvWorkers

    def publish(self, version: int) -> Receipt:
        """Give the engine the policy's weights, with their version and digest; return the receipt."""
        with phase("sync"):
            self.gather_weights()
            digest = quick_sum(self.parameters)
            return self._published(lambda: self.engine.publish(self.whole_policy, version, digest))

    def prepare_publication(self, version: int) -> Publish:
        """Copy the policy's weights; return what publishes them, while the policy moves on."""
        with phase("sync"):
            self.gather_weights()
            digest = quick_sum(self.parameters)
            return partial(self._published, self.engine.prepare(self.whole_policy, version, digest))

    def _published(self, publish: Publish) -> Receipt:
        """Let each rank's engine take a publication; return the receipt of all."""
        return joint_receipt(self.sampling_ranks.gather_results("the publication", publish))

    def take_incidents(self) -> list[str]:
        """Return what happened to the engines since the last call, a sentence each."""
        return [
            f"rank {rank} {text}" if self.ranks.size > 1 else text
            for rank, texts in enumerate(self.ranks.gather("incidents", self.engine.take_incidents()))
            for text in texts
        ]

    @torch.no_grad()
    def gather_weights(self) -> None:
        """Copy the trained weights of all ranks into ``whole_policy``."""
        if self.whole_policy is not self.policy:
            for name, weight in self.parameters.items():
                self.whole_policy.get_parameter(name).copy_(whole(weight))

    def trainable_copy(self) -> nn.Module:
        """Return the policy with whole weights, of the last ``gather_weights``, in the dtypes that train.

        It is a copy if those are not the dtypes that compute, or if weights that train are in main memory.
        """
        if dtype_of_masters(self.recipe) is None:
            return self.whole_copy()
        place = MAIN_MEMORY if self.recipe.trainer.offload else None
        copied = with_weights_in(torch.float32, self.whole_policy, place)
        for name, weight in self.parameters.items():
            copied.get_parameter(name).data.copy_(whole(weight.detach()))
        return copied

    def whole_copy(self) -> nn.Module:
        """Return ``whole_policy`` to make copies of; with ``trainer.offload`` they begin in main memory."""
        if not self.recipe.trainer.offload:
            return self.whole_policy
        return with_weights_in(None, self.whole_policy, MAIN_MEMORY)

    def close(self) -> None:
        """Close the engine, and end the workers."""
        self.workers.close()
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
        prefix = forced_prefix_ids(self.chat, self.recipe.episode.forced_prefix)
        try:
            return self._collect(
                tasks,
                group_size=group_size,
                context=self.episode_context(sampling_params),
                turn_source=PolicyTurns(self.engine, sampling_params, prefix, force_rate, self.grammars),
                grade=self.workers.grade,
                key=(self.recipe.seed, *key),
                on_ended=on_ended,
            )
        finally:
            self.engine.reset_prefix_cache()

    def _collect(self, tasks: Sequence[Task], **options: Any) -> list[RolloutGroup]:
        """Collect this rank's share of the tasks, and exchange the groups: every rank returns all of them."""
        self.sampling_ranks.check_same(
            {
                "the tasks of a step": [task.task_id for task in tasks],
                "the key of random numbers": options["key"],
            },
            remedy="tasks must follow from the recipe alone: look for random numbers without a key",
        )
        indices = range(self.ranks.rank, len(tasks), self.ranks.size)
        shares = self.sampling_ranks.gather_results(
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
            key=(self.recipe.seed, *key),
        )

    def episode_context(self, sampling_params: SamplingParams) -> EpisodeContext:
        """Return what episodes need besides tasks."""
        return EpisodeContext(
            self.chat,
            self.env,
            sampling_params,
            self.recipe.episode,
            self.engine.context_length,
            self.workers,
        )

    def evaluate(
        self,
        name: str,
        prove: Callable[[Sequence[RolloutGroup], Mapping[str, float]], None],
        on_ended: EndedFn | None = None,
    ) -> Evaluation:
        """Evaluate with the sampler's weights: always the same tasks and random numbers.

        ``prove`` raises if the collected groups, or their means, are not those that the recipe declares.
        ``on_ended`` is called while answers are sampled.
        """
        cfg = self.recipe.eval
        params = self.recipe.sampling.to_params(self.sampling_params.stop_ids, temperature=cfg.temperature)
        groups = self.collect_rollouts(self.eval_tasks, cfg.samples, params, ("eval",), on_ended=on_ended)
        evaluation = evaluate(name, self.env.rewards, groups, cfg.passes_at)
        prove(groups, evaluation.reward)
        return evaluation

    @cached_property
    def copies_of_task(self) -> Counter[PromptKey]:
        """The number of training tasks with each prompt."""
        return Counter(map(prompt_key, self.train_tasks))

    def tasks_of_step(self, stage: str, step: int, count: int) -> list[Task]:
        """Return the training tasks of a step; each epoch is a new shuffle by seed, stage and epoch."""
        total = len(self.train_tasks)
        chosen = []
        for position in range(step * count, (step + 1) * count):
            order = permutation(total, self.recipe.seed, stage, "epoch", position // total)
            chosen.append(self.train_tasks[order[position % total]])
        return chosen


def _sharded(policy: nn.Module, recipe: Recipe, ranks: Ranks) -> nn.Module:
    """Shard a policy and prove its forward; return the one with whole weights, that samples or is published.

    Servers sample from copies of their own, so beside them it is in main memory.
    """
    masters, offload = dtype_of_masters(recipe), recipe.trainer.offload
    if ranks.mesh is None:
        prove_forward(policy)
        return as_it_computes(policy, recipe)
    samples_on = MAIN_MEMORY if recipe.engine.kind == "vllm" else device_of(ranks.mesh)
    whole_policy = with_weights_in(masters, policy, samples_on, share_frozen=not offload)
    if masters is not None:  # rounded, less can be proven
        exact = sharing_weights(policy)
        shard_model(exact, ranks.mesh, offload=offload)
        prove_forward(exact)
    shard_model(policy, ranks.mesh, masters, offload=offload)
    prove_forward(policy)
    return whole_policy


def _with_date(recipe: Recipe, loaded: LoadedModel, ranks: Ranks) -> Recipe:
    """Return a recipe with the date of its prompts, if the chat template writes one; the first rank's."""
    date = ranks.gather("the date of prompts", prompt_date(loaded.tokenizer, recipe.chat.date))[0]
    return with_date(recipe, date)


def open_session(recipe: Recipe, env: Env, ranks: Ranks = ONE, threads: int | None = None) -> Session:
    """Load the model, add the adapter, check environment and engines; return the session.

    ``threads`` is the number of a run that is continued; a new one uses the recipe's, or chooses.
    """
    recipe, _ = with_eval_tasks(recipe, env)
    eval_count = recipe.eval.tasks
    assert eval_count is not None  # with_eval_tasks sets it
    loss_count = recipe.stage("sft").eval_tasks if "sft" in recipe.stages else 0
    needed, key = max((eval_count, "eval.tasks"), (loss_count, "sft.eval_tasks"))
    splits = checked_tasks(env, evaluated=needed > 0)  # before a model is loaded
    if len(splits["eval"]) < needed:
        raise DataError(
            "the environment has too few evaluation tasks",
            got="; ".join((str(len(splits["eval"])), *env.notes)),
            expected=f"at least {key} = {needed}",
            remedy=f"add data, or lower {key}",
        )
    check_metric_names(f"reward_part/{name}" for name in env.rewards)
    keep_freed_memory()
    loaded, policy = load_policy(recipe, ranks)
    set_threads(recipe, policy, threads, ranks.size)
    sampling_params = recipe.sampling.to_params(loaded.stop_ids)
    sampling_params.max_prompt_length(loaded.context_length)  # raises if no token could be sampled
    whole_policy = _sharded(policy, recipe, ranks)
    recipe = _with_date(recipe, loaded, ranks)
    chat = make_chat(loaded.tokenizer, loaded.stop_ids, **recipe.chat.model_dump())
    if (limit := recipe.episode.max_prompt_tokens) is not None:
        env = with_prompt_limit(env, chat, limit)
        splits = checked_tasks(env, evaluated=needed > 0)  # truncated prompts may be equal
    vocabulary = causal_model(policy).config.get_text_config().vocab_size  # tokenizers may have fewer ids
    grammars = None if recipe.episode.grammar == "off" else CallGrammars(chat, vocabulary)
    with ExitStack() as opened:
        workers = open_workers(env, recipe.episode, [*splits["train"], *splits["eval"]])
        opened.callback(workers.close)
        engine = ranks.together(
            "opening the engine",
            lambda: opened.enter_context(closing(open_engine(recipe, loaded, whole_policy, ranks))),
        )
        session = Session(
            recipe=recipe,
            loaded=loaded,
            policy=policy,
            whole_policy=whole_policy,
            ranks=ranks,
            sampling_ranks=ranks.with_own_group(),
            parameters=trainable_parameters(policy),
            engine=engine,
            env=env,
            train_tasks=splits["train"],
            eval_tasks=splits["eval"][:eval_count],
            loss_tasks=splits["eval"][:loss_count],
            sampling_params=sampling_params,
            chat=chat,
            grammars=grammars,
            workers=workers,
        )
        opened.pop_all()  # the session closes them
    return session
