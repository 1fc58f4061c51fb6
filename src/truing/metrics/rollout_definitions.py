"""Metrics of what a step drew: rewards, groups, tokens by origin, how attempts ended."""

from truing.metrics.metric import Metric

NO_REWARD = "no rollout of the step has a reward"
NO_GROUP = "no group has two rewards"
NO_SAMPLED = "no token was sampled"

ROLLOUT_METRICS = (
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
        "tokens/learnable_share",
        "share",
        "tokens/trained ÷ tokens of origin SAMPLED, FORCED or DEMO. A fact about the mask and no measure of "
        "success: read it with tokens/origin_share.",
        "there are none of these",
    ),
    Metric("tokens/origin_share/<origin>", "share", "Tokens of one origin ÷ all tokens of the step.", ""),
    Metric(
        "alignment",
        "share",
        "Positions at which the id that the trainer scored is the id that the sampler drew; a position that "
        "only one of them has counts as unequal. Must be exactly 1.",
        "nothing was sampled",
    ),
    Metric(
        "length/mean",
        "tokens/sample",
        "Mean number of SAMPLED or DEMO tokens of a sample; demonstrations beside rollouts do not count.",
        "",
    ),
    Metric("length/max", "tokens/sample", "The largest such number.", ""),
    Metric(
        "context/mean",
        "tokens/sample",
        "Mean number of tokens of a sample in front of the first that was sampled or demonstrated.",
        "",
    ),
    Metric("context/max", "tokens/sample", "The largest such number.", ""),
    Metric(
        "context/cut_share",
        "share",
        "Rollouts whose prompt was cut to episode.max_prompt_tokens ÷ all rollouts.",
        "episode.max_prompt_tokens is not set",
    ),
    Metric(
        "context_chars/<role>",
        "characters",
        "Mean characters, over rollouts, of the messages of one role (system, user, assistant, tool), in the "
        "prompt and after it, as they are left by cuts; tool calls do not count.",
        "no message has that role",
    ),
    Metric(
        "context_lost/<role>",
        "characters",
        "Mean characters, over rollouts, that messages of one role lost: to episode.max_prompt_tokens at the "
        "front of a prompt's, to episode.max_reply_chars at the end of a world's.",
        "no message has that role",
    ),
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
        "tools/valid_share",
        "share",
        "Calls that the world did not answer with an error (malformed, no such tool, arguments off its "
        "schema, or refused by the tool) ÷ calls that it answered.",
        "no call was answered",
    ),
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
            "not_kept": "their rollout failed, has no other to compare with, earned too little, or is of a "
            "group that was left out",
            "cut": 'their rollout was cut (gates.truncated = "mask")',
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
)
