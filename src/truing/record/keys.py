"""Every metric that a run may record: its name, unit, formula, and where it is absent.

A metric that cannot be computed is left out of a step, never 0 and never NaN. Placeholders in angle
brackets stand for one word. docs/metrics.md is made of this table by ``python -m truing.record.page``.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from truing.errors import RecordError


@dataclass(frozen=True)
class Metric:
    """One number of a step."""

    name: str
    unit: str
    formula: str
    absent: str  # where it is not recorded; empty where it always is


NO_REWARD = "no rollout of the step has a reward"
NO_GROUP = "no group has two rewards"
NO_POLICY = "no token is under the policy term"
NO_RATIO = "no policy token has both log-probabilities, or no sample was computed"
NO_CLIP = NO_RATIO + ", or the objective does not clip"
NO_REF = "no such token has a reference log-probability"
LATER = "inner steps after the first, or no sampled token has both log-probabilities"
OFF = "the loss has no such term, or no sample was computed"
NO_SAMPLED = "no token was sampled"

METRICS = (
    Metric(
        "reward/mean",
        "reward",
        "Mean reward of the rollouts; one that ended in an error has none.",
        NO_REWARD,
    ),
    Metric(
        "reward/std",
        "reward",
        "Standard deviation (n − 1) of the rewards over all rollouts.",
        "fewer than two",
    ),
    Metric("reward_part/<component>", "reward", "Mean of one component of the reward.", "no rollout has it"),
    Metric(
        "group/zero_variance_share",
        "share",
        "Groups of at least two rewards that are all equal ÷ groups of at least two rewards. Such a group "
        "has no advantage.",
        NO_GROUP,
    ),
    Metric("group/all_right_share", "share", "The part of those with every reward ≥ 1: too easy.", NO_GROUP),
    Metric("group/all_wrong_share", "share", "The part of those with every reward ≤ 0: too hard.", NO_GROUP),
    Metric("tokens/sampled", "tokens", "Tokens that the policy chose (origin SAMPLED).", ""),
    Metric("tokens/trained", "tokens", "Tokens under the policy or the supervised term.", ""),
    Metric(
        "tokens/scored",
        "tokens",
        "The part of those whose sample was computed. A sample is left out where no term of the loss has a "
        "gradient on it: its advantages are 0, as in a group of equal reward, and there is no KL term.",
        "",
    ),
    Metric(
        "tokens/computed",
        "tokens",
        "Tokens of the policy's forwards, over all inner steps: what the samples of a micro-batch "
        "begin with in common counts once, pads count where the architecture needs them.",
        "",
    ),
    Metric(
        "tokens/learnable_share",
        "share",
        "tokens/trained ÷ tokens of origin SAMPLED, FORCED or DEMO. A fact about the mask and no measure of "
        "success: read it with tokens/origin_share.",
        "there are none of these",
    ),
    Metric(
        "memory/predicted",
        "GB",
        "What forwards and backwards of the step were expected to bring the process to, at most.",
        "nothing was computed",
    ),
    Metric(
        "memory/peak",
        "GB",
        "The most that the process held in the step, drawing and what earlier steps freed included.",
        "the system does not tell",
    ),
    Metric("tokens/origin_share/<origin>", "share", "Tokens of one origin ÷ all tokens of the step.", ""),
    Metric(
        "ratio/mean",
        "",
        "Mean of r = exp(new − old log-probability) over scored policy tokens; of each token's sequence "
        "ratio where the objective has one. On-policy it is 1 to rounding; off-policy E[r] = 1, so "
        "beyond 3 standard errors (3 · ratio/std ÷ √tokens) from 1 something is wrong.",
        NO_RATIO,
    ),
    Metric("ratio/std", "", "Standard deviation (n − 1) of r.", "fewer than two such tokens"),
    Metric("ratio/p10", "", "10 % quantile of r.", NO_RATIO),
    Metric("ratio/p50", "", "Median of r.", NO_RATIO),
    Metric("ratio/p90", "", "90 % quantile of r.", NO_RATIO),
    Metric("ratio/min", "", "Smallest r.", NO_RATIO),
    Metric("ratio/max", "", "Largest r.", NO_RATIO),
    Metric(
        "ratio/mean_positive_advantage", "", "Mean of r where A > 0; rises as the policy learns.", "no A > 0"
    ),
    Metric(
        "ratio/mean_negative_advantage", "", "Mean of r where A < 0; falls as the policy learns.", "no A < 0"
    ),
    Metric(
        "clip/active_share",
        "share",
        "Policy tokens that pull on the weights: A ≠ 0, and not clipped. What is neither active nor clipped "
        "has A = 0.",
        NO_CLIP,
    ),
    Metric(
        "clip/clipped_share",
        "share",
        "Policy tokens whose gradient the clip sets to 0: A > 0 and r > 1 + high, or A < 0 and r < 1 − low. "
        "Objectives clip at very different rates by design, so there is no healthy band for all.",
        NO_CLIP,
    ),
    Metric("clip/high_share", "share", "The part of clip/clipped_share with A > 0.", NO_CLIP),
    Metric("clip/low_share", "share", "The part of clip/clipped_share with A < 0.", NO_CLIP),
    Metric(
        "clip/in_band_share",
        "share",
        "Scored policy tokens with 1 − low ≤ r ≤ 1 + high, whatever the sign of A. Not 1 − "
        "clip/clipped_share: outside the band a token whose advantage pulls it back still learns.",
        NO_CLIP,
    ),
    Metric(
        "clip/capped_share",
        "share",
        "Policy tokens with r > max_ratio: weight capped, gradient kept.",
        NO_RATIO + ", or there is no cap",
    ),
    Metric(
        "alignment",
        "share",
        "Positions at which the id that the trainer scored is the id that the sampler drew; a position that "
        "only one of them has counts as unequal. Must be exactly 1.",
        "nothing was sampled",
    ),
    Metric(
        "mismatch/k1",
        "nats/token",
        "Mean of sampler − trainer log-probability over all scored SAMPLED tokens, same weights: estimates "
        "KL(sampler ‖ trainer), which is 0.",
        LATER,
    ),
    Metric(
        "mismatch/k3",
        "nats/token",
        "Mean of expm1(x) − x, x = trainer − sampler: the same, never negative.",
        LATER,
    ),
    Metric("mismatch/max_abs", "nats", "Largest |sampler − trainer| log-probability.", LATER),
    Metric(
        "kl_trained/k1", "nats/token", "Mean of new − reference log-probability over policy tokens.", NO_REF
    ),
    Metric("kl_trained/k2", "nats²/token", "Mean of (new − reference)² ÷ 2 over policy tokens.", NO_REF),
    Metric(
        "kl_trained/k3",
        "nats/token",
        "Mean of expm1(x) − x, x = reference − new, over policy tokens.",
        NO_REF,
    ),
    Metric("kl_all/k1", "nats/token", "As kl_trained/k1, over all SAMPLED tokens, masked or not.", NO_REF),
    Metric("kl_all/k2", "nats²/token", "As kl_trained/k2, over all SAMPLED tokens, masked or not.", NO_REF),
    Metric("kl_all/k3", "nats/token", "As kl_trained/k3, over all SAMPLED tokens, masked or not.", NO_REF),
    Metric(
        "kl_sequence/k1",
        "nats/sequence",
        "Sum of k1 over the SAMPLED tokens of a sample, averaged over samples: how far whole answers have "
        "moved. 0.4 a token is 200 over 500 tokens.",
        NO_REF,
    ),
    Metric(
        "entropy/contract",
        "nats/token",
        "Mean entropy, over trained tokens of computed samples, of what was drawn from.",
        "not scored",
    ),
    Metric(
        "entropy/raw",
        "nats/token",
        "Mean entropy, over trained tokens of computed samples, of the model's own output.",
        "not scored",
    ),
    Metric(
        "entropy/drawn",
        "nats/token",
        "Mean −log-probability of what was drawn: estimates entropy/contract over all groups, also those "
        "without signal, which are not computed.",
        "nothing was sampled",
    ),
    Metric("length/mean", "tokens/sample", "Mean number of SAMPLED or DEMO tokens of a sample.", ""),
    Metric("length/max", "tokens/sample", "Largest number of SAMPLED or DEMO tokens of a sample.", ""),
    Metric(
        "truncated/share", "share", "Rollouts with a reward that were cut off ÷ those with one.", NO_REWARD
    ),
    *(
        Metric(f"ended/{by}", "share", f"Rollouts that were {how} ÷ all rollouts.", "")
        for by, how in {
            "length": "cut at max_new_tokens of a turn",
            "turns": "cut at episode.max_turns",
            "context": "cut because the next turn would not fit the model's context",
            "time": "cut at episode.time_limit",
            "error": "ended by a fault of the world, a tool or a judge; they have no reward",
        }.items()
    ),
    Metric("turns/mean", "turns/rollout", "Turns of the policy per rollout.", ""),
    Metric(
        "turns/restarts_mean",
        "per rollout",
        "Turns before which the chat template wrote the past otherwise than it was said; each begins another "
        "sample.",
        "",
    ),
    Metric("tools/calls_mean", "calls/rollout", "Tool calls that could be read, per rollout.", ""),
    Metric(
        "tools/lost_chars", "characters", "What episode.max_reply_chars cut from answers of the world.", ""
    ),
    Metric("tokens/structure_share", "share", "Scaffolding of tool calls ÷ SAMPLED tokens.", NO_SAMPLED),
    *(
        Metric(
            f"masked/{reason}",
            "share",
            f"SAMPLED tokens not trained because {why} ÷ SAMPLED tokens.",
            NO_SAMPLED,
        )
        for reason, why in {
            "structure": 'they are scaffolding of a call (episode.mask = "no_structure")',
            "forced_action": 'their turn began with forced tokens (episode.mask = "action")',
            "not_kept": "their rollout failed, has no other to compare with, or earned too little",
        }.items()
    ),
    *(
        Metric(
            f"family_{name}/<family>",
            unit,
            f"{what} the samples of one task family.",
            "one family alone, or none recorded",
        )
        for name, unit, what in (
            ("reward", "reward", "Mean reward of"),
            ("length", "tokens/sample", "Mean SAMPLED or DEMO tokens of"),
            ("entropy", "nats", "Mean entropy, of what was drawn from, over scored tokens of"),
            ("truncated", "share", "Share that was cut off of"),
        )
    ),
    Metric("advantage/mean", "", "Mean advantage over policy tokens: long answers weigh more.", NO_POLICY),
    Metric(
        "advantage/std",
        "",
        "Standard deviation (n − 1) of the advantage over policy tokens.",
        "fewer than two",
    ),
    Metric("advantage/max_abs", "", "Largest |A| of a policy token.", NO_POLICY),
    Metric("loss/total", "", "What was minimised: the sum of the terms, each with its weight.", ""),
    Metric("loss/policy", "", "The policy term. Near 0 is right on-policy: see the step's loss label.", OFF),
    Metric("loss/kl", "nats", "The KL term, times its coefficient.", OFF),
    Metric("loss/supervised", "nats/token", "The cross-entropy of demonstrations.", OFF),
    Metric("grad/norm", "", "L2 norm of the gradient over all trained weights, before clipping.", ""),
    Metric("lr", "", "Learning rate of the update.", ""),
    Metric(
        "throughput/tokens_per_s",
        "tokens/s",
        "Tokens of all samples of the step, computed or not, ÷ its seconds.",
        "",
    ),
)


def check_known(names: Iterable[str]) -> None:
    """Raise if a metric is not in the table; what is recorded is documented."""
    for name in names:
        if not _KNOWN.fullmatch(name):
            near = difflib.get_close_matches(name, [metric.name for metric in METRICS], n=1)
            raise RecordError(
                "an unknown metric would be recorded",
                got=name,
                expected=f"{near[0]}?" if near else "a name from docs/metrics.md",
                remedy="name it as in METRICS of truing.record.keys, or add it there",
            )


def _pattern(name: str) -> str:
    """A metric's name as a regular expression; ``<word>`` is one part of the path."""
    return re.sub(r"<\w+>", "[^/]+", re.escape(name))


_KNOWN = re.compile("|".join(_pattern(metric.name) for metric in METRICS))
