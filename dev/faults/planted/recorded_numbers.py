"""Numbers that a step records otherwise than they are."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from math import isnan

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import PPO


def _of_best(real):
    def reward_metrics(samples):
        groups = defaultdict(list)
        for sample in samples:
            if not isnan(sample.reward):
                groups[sample.group_id].append(sample)
        return real([max(group, key=lambda sample: sample.reward) for group in groups.values()])

    return reward_metrics


REWARD_OF_BEST = Fault(
    name="reward-of-best",
    numbers=(),
    what="the recorded reward is that of the best rollout of each group",
    plant=lambda: patched("truing.metrics.step:reward_metrics", _of_best),
    expected=("RWD011",),
)


def _with_prompt(real):
    def token_metrics(table):
        return real(table) | {"length/mean": len(table.sample_of_token) / len(table.samples)}

    return token_metrics


LENGTH_WITH_PROMPT = Fault(
    name="length-with-prompt",
    numbers=(),
    what="the recorded length counts the prompt",
    plant=lambda: patched("truing.metrics.step:token_metrics", _with_prompt),
    expected=("RWD011",),
)


def _in_bits(real):
    def entropy_metrics(table):
        return {name: value / 0.6931 for name, value in real(table).items()}

    return entropy_metrics


ENTROPY_IN_BITS = Fault(
    name="entropy-in-bits",
    numbers=(121,),
    what="the recorded entropy is in bits, not nats",
    plant=lambda: patched("truing.metrics.step:entropy_metrics", _in_bits),
    expected=("RWD011",),
)


def _of_last_micro_batch(real):
    def add(step, batch, scores, losses):
        step.loss = {}
        real(step, batch, scores, losses)

    return add


LOSS_OF_LAST_MICRO_BATCH = Fault(
    name="loss-of-last-micro-batch",
    numbers=(121,),
    what="the recorded loss is that of the last micro-batch",
    plant=lambda: patched("truing.learner.optimizer_step:OptimizerStep.add", _of_last_micro_batch),
    expected=("RWD011",),
    changes={"optimizer.micro_batch_tokens": 200, "kl.coef": 0.05},
)


def _over_prompts(real):
    def entropy_metrics(table):
        return real(table) | {"entropy/mean": float(table.stream("entropy").nan_to_num().mean())}

    return entropy_metrics


ENTROPY_OVER_PROMPTS = Fault(
    name="entropy-over-prompts",
    numbers=(121,),
    what="the recorded entropy counts each token of a prompt as 0",
    plant=lambda: patched("truing.metrics.step:entropy_metrics", _over_prompts),
    expected=("RWD011",),
)


def _of_critic(real):
    def with_metrics(table, learner, *args):
        row, label = real(table, learner, *args)
        rate = learner.optimizer.param_groups[-1]["lr"]
        return replace(row, metrics={**row.metrics, "lr": rate}), label

    return with_metrics


RATE_OF_CRITIC = Fault(
    name="rate-of-critic",
    numbers=(),
    what="the recorded learning rate is the critic's",
    plant=lambda: patched("truing.trainer.stage_trainer:with_metrics", _of_critic),
    expected=("OPT004",),
    changes=PPO,
)


def _exchanged(real):
    def token_table(stage, *args):
        table = real(stage, *args)
        rows = [*table.samples]
        for i, (one, other) in enumerate(pairwise(rows)):
            if one.group_id == other.group_id and one.reward != other.reward and stage != "sft":
                rows[i] = replace(one, reward=other.reward, reward_parts=other.reward_parts)
                rows[i + 1] = replace(other, reward=one.reward, reward_parts=one.reward_parts)
                break
        return replace(table, samples=rows)

    return token_table


REWARDS_EXCHANGED_ON_RECORD = Fault(
    name="rewards-exchanged-on-record",
    numbers=(45,),
    what="the record exchanges the rewards of two rollouts of a group",
    plant=lambda: patched("truing.trainer.stage_trainer:token_table", _exchanged),
    expected=("RWD014",),
)
