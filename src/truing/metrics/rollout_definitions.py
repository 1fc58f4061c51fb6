"""Metrics of a step's rollouts: rewards, groups, tokens by origin, endings."""

from truing.metrics.metric import Metric

NO_REWARD = "no rollout of the step has a reward"
NO_GROUP = "no group has two rewards"
NO_SAMPLED = "no token was sampled"

ROLLOUT_METRICS = (
    Metric(
        "reward/mean",
        "reward",
        "Mean reward of the rollouts; a failed rollout has none.",
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
    Metric(
        "group/all_right_share",
        "share",
        "The part of group/zero_variance_share with rewards ≥ 1: too easy.",
        NO_GROUP,
    ),
    Metric(
        "group/all_wrong_share",
        "share",
        "The part of group/zero_variance_share with rewards ≤ 0: too hard.",
        NO_GROUP,
    ),
    Metric("tokens/sampled", "tokens", "Tokens that the policy sampled (origin SAMPLED).", ""),
    Metric("tokens/trained", "tokens", "Tokens under the policy or the supervised term.", ""),
    Metric(
        "tokens/learnable_share",
        "share",
        "tokens/trained ÷ tokens of origin SAMPLED, FORCED or DEMO. A property of the mask, not a "
        "measure of success: read it with tokens/origin_share.",
        "no token has one of these origins",
    ),
    Metric("tokens/origin_share/<origin>", "share", "Tokens of one origin ÷ all tokens of the step.", ""),
    Metric(
        "alignment",
        "share",
        "Positions at which the trainer scored the id that the sampler sampled; a position that "
        "only one of them has counts as unequal. Must be exactly 1.",
        "no token was sampled",
    ),
    Metric(
        "length/mean",
        "tokens/sample",
        "Mean number of SAMPLED or DEMO tokens of a sample; additional demonstrations do not count.",
        "",
    ),
    Metric("length/max", "tokens/sample", "The largest such number.", ""),
    Metric(
        "context/mean",
        "tokens/sample",
        "Mean number of tokens of a sample before its first SAMPLED or DEMO token.",
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
        "prompt and after it, after truncation; tool calls do not count.",
        "no message has that role",
    ),
    Metric(
        "context_lost/<role>",
        "characters",
        "Mean characters, over rollouts, that messages of one role lost: prompts at the front, to "
        "episode.max_prompt_tokens; replies of the environment at the end, to episode.max_reply_chars.",
        "no message has that role",
    ),
    Metric(
        "truncated/share", "share", "Truncated rollouts with a reward ÷ rollouts with a reward.", NO_REWARD
    ),
    *(
        Metric(f"ended/{by}", "share", f"Rollouts that were {how} ÷ all rollouts.", "")
        for by, how in {
            "length": "truncated at max_new_tokens of a turn",
            "turns": "truncated at episode.max_turns, or at a limit of a program's calls",
            "context": "truncated because the next turn would not fit in the model's context",
            "time": "truncated at episode.time_limit",
            "error": "ended by an error of the environment, a tool or a judge, and so have no reward,",
        }.items()
    ),
    Metric("turns/mean", "turns/rollout", "Turns of the policy per rollout.", ""),
    Metric(
        "turns/restarts_mean",
        "per rollout",
        "Turns that begin a new sample: the chat template re-rendered earlier turns differently, or "
        "another conversation of a program begins.",
        "",
    ),
    *(
        Metric(f"program/{name}_mean", "calls/rollout", f"Calls of a program {which}.", "no program called")
        for name, which in {
            "calls": "to the policy that were sampled",
            "refused_calls": "that were refused",
            "restart_calls": "that begin a conversation of their own, or a new sample of one",
            "untrained_calls": "in conversations that the recipe does not train",
            "undelivered_calls": "whose answer no client got; they are in no sample",
            "overridden_calls": "that asked for other sampling than the recipe's, which overrides it",
        }.items()
    ),
    Metric("tools/calls_mean", "calls/rollout", "Well-formed tool calls, per rollout.", ""),
    Metric(
        "tools/valid_share",
        "share",
        "Calls without an error reply (malformed, no such tool, arguments that violate the "
        "schema, or refused by the tool) ÷ calls with a reply.",
        "no call has a reply",
    ),
    Metric(
        "tools/lost_chars",
        "characters",
        "Characters that episode.max_reply_chars cut from replies of the environment.",
        "",
    ),
    Metric("tokens/structure_share", "share", "Tokens of tool-call syntax ÷ SAMPLED tokens.", NO_SAMPLED),
    *(
        Metric(
            f"masked/{reason}",
            "share",
            f"SAMPLED tokens not trained because {why} ÷ SAMPLED tokens.",
            NO_SAMPLED,
        )
        for reason, why in {
            "structure": 'they are tool-call syntax (episode.mask = "no_structure")',
            "forced_action": 'their turn began with prefilled tokens (episode.mask = "action")',
            "not_kept": "their rollout failed, is alone in its group, has too low a reward, or is in "
            "a dropped group",
            "cut": 'their rollout was cut (gates.truncated = "mask")',
            "other_conversation": "they are of a program's conversation that the recipe does not train",
        }.items()
    ),
    *(
        Metric(
            f"family_{name}/<family>",
            unit,
            f"{what} the samples of one task family.",
            "there is only one family, or none",
        )
        for name, unit, what in (
            ("reward", "reward", "Mean reward of"),
            ("length", "tokens/sample", "Mean SAMPLED or DEMO tokens of"),
            ("entropy", "nats", "Mean entropy of the sampling distribution over scored tokens of"),
            ("truncated", "share", "Share that was truncated of"),
        )
    ),
)
