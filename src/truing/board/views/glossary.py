"""What the words on the board's pages mean, for whoever reads them for the first time."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Term:
    """A word, or several that are told together, as the pages write them."""

    names: tuple[str, ...]
    means: str


@dataclass(frozen=True)
class Topic:
    """Words that belong together."""

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
                "A part of a run with one way to learn: supervised (sft), or by reward (grpo, ppo …). "
                "Stages follow each other.",
            ),
            _term(
                "update",
                "One turn of learning: attempts are made and graded, and the weights are moved. Each stage "
                'counts its own from 1: "grpo 15" is the 15th of grpo. Recipes call it a step.',
            ),
            _term(
                "rollout",
                "One attempt at a task, from the prompt to the last token; with tools it has several turns.",
            ),
            _term(
                "sample",
                "What a rollout is trained as: a row of tokens, each with its origin and its numbers.",
            ),
            _term(
                "group",
                "The attempts at one prompt in one update. In grpo they are compared with each other.",
            ),
            _term("reward", "What the grader gives an attempt."),
            _term(
                "sampling contract",
                "How tokens are drawn: temperature, top-p, penalties, bans. Sampler, trainer and reference "
                "score under the same one.",
            ),
            _term(
                "advantage, A",
                "How much better an attempt was than expected, for example than the mean of its group. "
                "Tokens with A > 0 are made likelier, those with A < 0 less likely; with A = 0 the reward "
                "teaches nothing.",
            ),
            _term(
                "evaluation",
                "Tasks that are never trained on, tried between updates. The interval holds the true mean "
                "in 95 of 100 cases.",
            ),
        ),
    ),
    Topic(
        "How far the policy moves",
        (
            _term("policy", "The model that is trained, as the one that chooses the next token."),
            _term(
                "inner epoch",
                "One pass over the rollouts of an update. From the second on, the policy has moved since "
                "they were drawn.",
            ),
            _term(
                "ratio, r",
                "How likely a token is now, over how likely it was when the update began. Before the first "
                "move of an update it is 1.",
            ),
            _term(
                "clip",
                "Bounds of the ratio, 1 − clip_low and 1 + clip_high. Beyond them a token that was pushed "
                "far enough has no gradient: it is clipped. A token that still pulls on the weights is "
                "active.",
            ),
            _term(
                "KL",
                "How far two policies are apart, in nats per token; the reference is the policy that the "
                "trained one is held near.",
            ),
            _term(
                "k1, k3",
                "Two estimates of a KL from drawn tokens. With x = log-probability of the reference − that "
                "of the policy, k1 is the mean of −x and may be below 0; k3 is the mean of exp(x) − 1 − x, "
                "which never is, and varies less.",
            ),
            _term(
                "entropy, raw entropy",
                "How undecided the policy is: 0 where it is sure of the next token. Raw is that of the "
                "model's own output, before temperature, top-p and penalties.",
            ),
            _term(
                "pull, closed form",
                "How hard an update pulls a token up: minus the gradient of the loss by its log-probability. "
                "The closed form is the same number by a formula that shares no code with the trainer; it is "
                "0 where the declared loss leaves a token alone.",
            ),
            _term(
                "null, null band",
                "What a number comes to where nothing is wrong, by rounding alone: the trainer measured "
                "against itself. A mismatch of that size is rounding.",
            ),
        ),
    ),
    Topic(
        "Where a token came from",
        (
            _term("PROMPT", "The task's own messages."),
            _term(
                "TEMPLATE, template",
                "Glue that the chat template puts between messages, such as the marks of a role.",
            ),
            _term("TOOL", "What a tool, or the world, answered."),
            _term(
                "FORCED, forced",
                "Put in without asking the policy, or the only token that a grammar allowed: no choice of "
                "its.",
            ),
            _term(
                "SAMPLED, policy's choice",
                "The policy drew this token itself. Only such tokens may be trained by reward.",
            ),
            _term("DEMO", "Part of a demonstration: trained by supervised terms alone."),
        ),
    ),
    Topic(
        "Why a token is not trained by reward",
        (
            _term("NO", "There is no reason: it is trained."),
            _term("NOT_SAMPLED", "The policy did not choose it."),
            _term(
                "STRUCTURE", "It is scaffolding of a tool call, which the recipe leaves out (no_structure)."
            ),
            _term("FORCED_ACTION", "Its turn began with forced tokens, under the mask that leaves such out."),
            _term(
                "NOT_KEPT",
                "Its rollout failed, or earned too little to be kept, or its group was left out.",
            ),
            _term("CUT", "Its rollout was cut off, and the recipe leaves such out."),
        ),
    ),
    Topic(
        "What the doctor says",
        (
            _term("finding", "What a rule of the doctor found, where, and what to do about it."),
            _term(
                "PROVEN",
                "Something that must hold does not, at this very token: no healthy run can show it. It is "
                "a bug.",
            ),
            _term(
                "EVIDENCE",
                "A bet against the run that a healthy one loses; the odds say how often it would win by "
                "chance: at 10⁶ : 1, in at most one healthy run of a million.",
            ),
            _term("SUSPECT", "A statistic that is unusual. Healthy runs may show it too: look, and judge."),
            _term(
                "CANNOT TELL",
                "What was recorded fits a fault and a healthy run alike; the experiment that would tell is "
                "named.",
            ),
            _term("FACT", "What is true of the run, and no fault: it is told, and not judged."),
            _term("NOT CHECKED", "Something that the rule needs was not recorded; it is named."),
            _term("CLEAN", "It was looked at, and nothing was found."),
        ),
    ),
    Topic(
        "Success criteria",
        (
            _term("pass", "It reads as it should."),
            _term("fail", "It does not."),
            _term("fact", "A number with no right or wrong by itself: it is told, and not judged."),
            _term("not checked", "Nothing was measured that it could be judged by."),
        ),
    ),
)


def glossary_json() -> list[dict[str, Any]]:
    """All of it, as the page shows it."""
    return [asdict(topic) for topic in TOPICS]
