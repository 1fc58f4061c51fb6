"""The glossary of the board: definitions of the terms that its pages use."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Term:
    """A term, or several defined together, as the pages write them."""

    names: tuple[str, ...]
    means: str


@dataclass(frozen=True)
class Topic:
    """A group of terms."""

    title: str
    words: tuple[Term, ...]


def _term(names: str, means: str) -> Term:
    return Term(tuple(names.split(", ")), means)


TOPICS = (
    Topic(
        "A run",
        (
            _term(
                "stage",
                "A part of a run with one algorithm: sft, rft, reinforce, rloo, grpo or ppo. Stages run "
                "one after another.",
            ),
            _term(
                "step",
                "The policy samples rollouts, reward functions grade them, and the weights change, once or "
                'several times. Each stage counts its steps from 1: "grpo 15" is the 15th of grpo.',
            ),
            _term(
                "rollout",
                "One episode of the policy on a task, from the prompt to the last token; with tools it "
                "has several turns.",
            ),
            _term(
                "sample",
                "A training sequence made from a rollout: tokens, each with its origin and its values.",
            ),
            _term(
                "group",
                "The rollouts of one prompt in one step. grpo compares them with each other.",
            ),
            _term(
                "reward",
                "The score that the reward function gives a rollout.",
            ),
            _term(
                "sampling parameters",
                "Temperature, top-k, top-p, min-p, penalties, minimum length. Sampler, trainer and "
                "reference use the same ones.",
            ),
            _term(
                "advantage, A",
                "How much better a rollout is than expected, for example than the mean of its group. "
                "Tokens with A > 0 become more likely, those with A < 0 less likely; A = 0 gives no "
                "gradient.",
            ),
            _term(
                "evaluation",
                "The mean reward on held-out tasks, before and after stages. Its 95 % interval holds the "
                "true mean in 95 of 100 cases.",
            ),
            _term(
                "second grader",
                "A function (eval.grader) that grades the answers of evaluations too, and never pays. If "
                "the paid reward rises and its value does not, the reward is hacked.",
            ),
            _term(
                "fork",
                "A run that goes on from a checkpoint of another, under a recipe of its own.",
            ),
            _term(
                "experiment, arm",
                "truing why RUN --experiment trains forks in pairs: an unchanged one, and one of each arm, "
                "a change of the recipe. The effect of an arm is the mean difference of their rewards.",
            ),
            _term(
                "e-value",
                "What fair bets that an arm has an effect have won, of 1. They reach a value e with a "
                "probability of at most 1/e if it has none, however often one looks.",
            ),
        ),
    ),
    Topic(
        "The policy and its changes",
        (
            _term(
                "policy",
                "The model that is trained.",
            ),
            _term(
                "inner epoch",
                "One pass over the rollouts of a step. From the second on, the policy differs from "
                "the one that sampled them.",
            ),
            _term(
                "ratio, r",
                "The probability of a token now, divided by its probability when the step began. It is "
                "1 before the first optimizer step.",
            ),
            _term(
                "clip",
                "Bounds of the ratio, 1 − clip_low and 1 + clip_high. A token past its bound in the "
                "direction of its advantage is clipped: its policy gradient is zero. Others are active.",
            ),
            _term(
                "KL",
                "The KL divergence of two policies, in nats per token. The reference is the policy at "
                "the start of the stage, unless the recipe syncs it.",
            ),
            _term(
                "k1, k3",
                "Two estimators of a KL from sampled tokens. With x = log-probability of the reference − "
                "that of the policy, k1 is the mean of −x and may be negative; k3 is the mean of exp(x) "
                "− 1 − x, which is never negative and varies less.",
            ),
            _term(
                "entropy, raw entropy",
                "The uncertainty about the next token: 0 where one token is certain. Raw entropy is that "
                "of the model's output before temperature, top-p and penalties.",
            ),
            _term(
                "token gradient, closed form",
                "−∂loss/∂log-prob: > 0 raises the token's probability. The closed form computes the same "
                "value by a formula that shares no code with the trainer; it is 0 if the declared loss "
                "has no gradient there.",
            ),
            _term(
                "null, null band",
                "The value of a metric if nothing is wrong, measured by comparing the trainer with "
                "itself. A mismatch of that size is rounding.",
            ),
        ),
    ),
    Topic(
        "Origin of a token",
        (
            _term(
                "PROMPT",
                "The messages of the task.",
            ),
            _term(
                "TEMPLATE, template",
                "Text that the chat template puts between messages, such as role markers.",
            ),
            _term(
                "TOOL",
                "The reply of a tool or of the environment.",
            ),
            _term(
                "FORCED, forced",
                "Prefilled, or the only token that a grammar allowed.",
            ),
            _term(
                "SAMPLED, sampled by the policy",
                "Sampled by the policy. Reward trains only such tokens.",
            ),
            _term(
                "DEMO",
                "Part of a demonstration. Only the supervised term trains it.",
            ),
        ),
    ),
    Topic(
        "Why a token is not trained by reward",
        (
            _term(
                "NO",
                "Not excluded: it is trained.",
            ),
            _term(
                "NOT_SAMPLED",
                "The policy did not sample it.",
            ),
            _term(
                "STRUCTURE",
                "Syntax of a tool call, which the recipe excludes (no_structure).",
            ),
            _term(
                "FORCED_ACTION",
                "Its turn began with forced tokens, under a mask that excludes such turns.",
            ),
            _term(
                "NOT_KEPT",
                "Its rollout failed, or had too low a reward to be kept, or its group was dropped.",
            ),
            _term(
                "CUT",
                "Its rollout was truncated, and the recipe excludes such rollouts.",
            ),
            _term(
                "OTHER_CONVERSATION",
                "A program asked for it in a conversation that the recipe does not train.",
            ),
        ),
    ),
    Topic(
        "Verdicts of the doctor",
        (
            _term(
                "finding",
                "What a rule of the doctor found: what, where, and the fix.",
            ),
            _term(
                "PROVEN",
                "An invariant is broken at this token, which no healthy run can show: it is a bug.",
            ),
            _term(
                "EVIDENCE",
                "A statistic contradicts what a healthy run shows. Odds of 10⁶ : 1 mean that at most one "
                "healthy run in a million shows it.",
            ),
            _term(
                "SUSPECT",
                "An unusual statistic. Healthy runs may show it too: check it.",
            ),
            _term(
                "CANNOT TELL",
                "The record fits both a fault and a healthy run. The finding names the experiment that "
                "decides.",
            ),
            _term(
                "FACT",
                "A fact about the run, not a fault.",
            ),
            _term(
                "NOT CHECKED",
                "The record lacks an input that the rule needs. The report names it.",
            ),
            _term(
                "CLEAN",
                "Checked, no findings.",
            ),
        ),
    ),
    Topic(
        "Success criteria",
        (
            _term(
                "pass",
                "The criterion is met.",
            ),
            _term(
                "fail",
                "The criterion is not met.",
            ),
            _term(
                "fact",
                "A number that is neither right nor wrong by itself.",
            ),
            _term(
                "not checked",
                "The measurement that the criterion needs is missing.",
            ),
        ),
    ),
)


def glossary_json() -> list[dict[str, Any]]:
    """Return the glossary as JSON."""
    return [asdict(topic) for topic in TOPICS]
