"""Metrics of a step: ratios, clips, KL, entropy, advantages, values, losses, gradients, resources."""

from truing.metrics.metric import Metric

NO_POLICY = "no token is under the policy term"
NO_RATIO = "no policy token has both log-probabilities, or no sample was computed"
NO_CLIP = NO_RATIO + ", or the objective does not clip"
NO_REF = "no such token has a reference log-probability"
LATER = "optimizer steps after the first, or no sampled token has both log-probabilities"
OFF = "the loss has no such term, or no sample was computed"
LOCAL = 'engine.kind = "local"'
NO_CORRECTION = 'correction.method = "off"'
NO_VALUE = "there is no critic"
NO_RETURN = "the algorithm computes no returns"

STEP_METRICS = (
    Metric(
        "tokens/scored",
        "tokens",
        "The part of tokens/trained whose sample was computed. A sample is left out if no loss term has a "
        "gradient on it: its advantages are 0, as in a group of equal reward, and there is no KL term.",
        "",
    ),
    Metric(
        "tokens/computed",
        "tokens",
        "Tokens of the policy's forward passes, over all optimizer steps: a prefix that the samples of a "
        "micro-batch share counts once, pads count where the architecture needs them.",
        "",
    ),
    Metric(
        "memory/predicted",
        "GB",
        "Predicted peak of the process's memory in the step's forward and backward passes.",
        "no sample was computed",
    ),
    Metric(
        "memory/peak",
        "GB",
        "Peak memory of the process in the step, including sampling and kept free memory.",
        "the system does not report it",
    ),
    Metric(
        "ratio/mean",
        "",
        "Mean of r = exp(new − old log-probability) over scored policy tokens; of each token's sequence "
        "ratio where the objective has one. On-policy it is 1 to rounding; off-policy E[r] = 1, so "
        "more than 3 standard errors (3 · ratio/std ÷ √tokens) from 1 is an error.",
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
        "Policy tokens with a gradient: A ≠ 0, and not clipped. A token that is neither active nor clipped "
        "has A = 0.",
        NO_CLIP,
    ),
    Metric("clip/active_positive_share", "share", "The part of clip/active_share with A > 0.", NO_CLIP),
    Metric(
        "clip/active_negative_share",
        "share",
        "The part of clip/active_share with A < 0. The two, clip/high_share, clip/low_share and the share "
        "with A = 0 add up to 1.",
        NO_CLIP,
    ),
    Metric(
        "clip/clipped_share",
        "share",
        "Policy tokens whose gradient the clip sets to 0: A > 0 and r > 1 + high, or A < 0 and r < 1 − low. "
        "Objectives clip at very different rates by design, so no healthy range holds for all.",
        NO_CLIP,
    ),
    Metric("clip/high_share", "share", "The part of clip/clipped_share with A > 0.", NO_CLIP),
    Metric("clip/low_share", "share", "The part of clip/clipped_share with A < 0.", NO_CLIP),
    Metric(
        "clip/in_band_share",
        "share",
        "Scored policy tokens with 1 − low ≤ r ≤ 1 + high, whatever the sign of A. Not 1 − "
        "clip/clipped_share: outside the range a token whose advantage moves it back keeps its gradient.",
        NO_CLIP,
    ),
    Metric(
        "clip/capped_share",
        "share",
        "Policy tokens with r > max_ratio: their weight is capped, their gradient kept.",
        NO_RATIO + ", or there is no cap",
    ),
    Metric(
        "mismatch/k1",
        "nats/token",
        "Mean of sampler − trainer log-probability over all scored SAMPLED tokens, same weights: estimates "
        "KL(sampler ‖ trainer), which is 0. With engine.ahead the sampler's weights are older.",
        LATER,
    ),
    Metric(
        "mismatch/k3",
        "nats/token",
        "Mean of expm1(x) − x, x = trainer − sampler: the same estimate, never negative.",
        LATER,
    ),
    Metric("mismatch/max_abs", "nats", "Largest |sampler − trainer| log-probability.", LATER),
    Metric(
        "mismatch/steps_behind",
        "steps",
        "Steps between the weights that sampled the rollouts and those at the start of the step;"
        " at most engine.ahead.",
        LOCAL,
    ),
    Metric(
        "mismatch/engine_max_abs",
        "nats",
        "Largest |engine − trainer| log-probability of the fixed rows at the publication, with weights that"
        " are proven equal: the engine's own rounding.",
        LOCAL,
    ),
    Metric(
        "mismatch/routes_differ",
        "share",
        "Sets of experts on record, by token and layer of the step's first forward, that the trainer's"
        " router would not select, given the routes on record before it ÷ sets on record. Equal prefixes that"
        " share their routes count once.",
        "the model is dense, or the engine returns no routes",
    ),
    *(
        Metric(
            f"mismatch_{name}/k3",
            "nats/token",
            f"mismatch/k3 over {tokens}.",
            LOCAL + "; or no such token has both log-probabilities",
        )
        for name, tokens in {
            "stop": "the stop tokens that end turns",
            "first": "the first tokens of turns, if they are not stop tokens",
            "structure": "the syntax of tool calls, but for first and stop tokens",
            "text": "all other sampled tokens",
        }.items()
    ),
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
        "Sum of k1 over the SAMPLED tokens of a sample, averaged over samples: the KL of whole samples. "
        "0.4 per token is 200 over 500 tokens.",
        NO_REF,
    ),
    Metric(
        "entropy/mean",
        "nats/token",
        "Mean entropy, over trained tokens of computed samples, of the sampling distribution.",
        "not scored",
    ),
    Metric(
        "entropy/raw",
        "nats/token",
        "Mean entropy, over trained tokens of computed samples, of the model's own output.",
        "not scored",
    ),
    Metric(
        "entropy/sampled",
        "nats/token",
        "Mean −log-probability of SAMPLED tokens: estimates entropy/mean over all groups, also those "
        "without signal, which are not computed.",
        "no token was sampled",
    ),
    Metric("advantage/mean", "", "Mean advantage over policy tokens: long rollouts weigh more.", NO_POLICY),
    Metric(
        "advantage/std",
        "",
        "Standard deviation (n − 1) of the advantage over policy tokens.",
        "fewer than two",
    ),
    Metric("advantage/mean_abs", "", "Mean |A| over policy tokens, of either sign.", NO_POLICY),
    Metric("advantage/max_abs", "", "Largest |A| of a policy token.", NO_POLICY),
    Metric(
        "value/mean",
        "reward",
        "Mean V of the states before SAMPLED tokens, before the optimizer steps.",
        NO_VALUE,
    ),
    Metric(
        "value/explained_variance",
        "",
        "1 − Σ (R − V)² ÷ Σ (R − mean R)² over SAMPLED tokens, V before the optimizer steps: 1 is perfect, "
        "0 no better than the returns' own mean, negative worse.",
        NO_VALUE + ", or all returns are equal",
    ),
    Metric(
        "value/head_step",
        "",
        "L2 norm of the step's change of the value head's weights; 0 if it does not train.",
        NO_VALUE,
    ),
    Metric("returns/mean", "reward", "Mean return of SAMPLED tokens: the target of V.", NO_RETURN),
    Metric(
        "returns/std", "reward", "Standard deviation (n − 1) of the returns of SAMPLED tokens.", NO_RETURN
    ),
    Metric("loss/total", "", "The total loss: the sum of the weighted terms.", ""),
    Metric(
        "loss/policy",
        "",
        "The policy term. A value near 0 is expected on-policy: see the step's loss label.",
        OFF,
    ),
    Metric("loss/kl", "nats", "The KL term, times its coefficient.", OFF),
    Metric("loss/value", "reward²", "The value term, times its coefficient.", OFF),
    Metric("loss/entropy", "nats", "The entropy bonus, times its coefficient, with a minus sign.", OFF),
    Metric("loss/supervised", "nats/token", "The cross-entropy of demonstrations.", OFF),
    Metric(
        "grad/norm",
        "",
        "L2 norm of the gradient over the policy's trained weights, before clipping.",
        "no optimizer step was made",
    ),
    Metric(
        "grad/critic_norm",
        "",
        "The same over the critic's own weights: its head, and its trunk if separate. Clipped separately.",
        NO_VALUE,
    ),
    Metric(
        "gate/ratio_masked_share",
        "share",
        "Scored policy tokens whose ratio is outside gates.min_ratio and gates.max_ratio, which the policy "
        "term leaves out ÷ scored policy tokens.",
        "the recipe has no such bound, or no token was scored",
    ),
    Metric(
        "gate/held_back",
        "optimizer steps",
        "Skipped optimizer steps of the step, by kl.cap, gates.min_trained_tokens or "
        "gates.min_trained_share. Later ones of the step are not counted.",
        "the recipe has none of these",
    ),
    Metric(
        "gate/equal_groups",
        "groups",
        "Groups of equal reward that were sampled and dropped. reward/mean includes their rewards.",
        'gates.equal_groups = "count"',
    ),
    Metric(
        "correction/weight_mean",
        "",
        "Mean weight of policy tokens, from old ÷ sampler probability by correction.method; 1 if "
        "sampler and trainer agree.",
        NO_CORRECTION,
    ),
    Metric("correction/dropped_share", "share", "Policy tokens of weight 0 ÷ policy tokens.", NO_CORRECTION),
    Metric(
        "correction/effective_share",
        "share",
        "Effective sample size ÷ policy tokens, (Σρ)² ÷ (N Σρ²), ρ = old ÷ sampler probability, not capped.",
        NO_CORRECTION,
    ),
    Metric("weight/kl", "", "Weight of the KL in the step.", "kl.target is not given"),
    Metric("weight/entropy", "", "Weight of the entropy bonus in the step.", "entropy.target is not given"),
    Metric(
        "weight/supervised", "", "Weight of the additional demonstrations in the step.", "the step has none"
    ),
    Metric("lr", "", "Learning rate of the step.", ""),
    Metric(
        "throughput/tokens_per_s",
        "tokens/s",
        "Tokens of all samples of the step, computed or not, ÷ its seconds.",
        "",
    ),
)
