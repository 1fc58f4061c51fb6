"""Formulas: tensors in, tensors out. No state, no configuration, nothing changed in place.

    sampling                logits, history and sampling parameters → the logits to sample from
    logprobs                log-probabilities and entropy, whole or in chunks of rows
    masks                   which tokens a loss term trains, from their origin
    advantages              rewards of a group → one advantage per rollout
    returns                 rewards and values of a trajectory → one advantage per token
    ratios                  importance ratios, and the tokens that the PPO clip masks
    ratio_histogram         counts of ratios between edges that include the clip's
    correction              off-policy weights, trainer probability over sampler probability
    stable_exp              products with e^x where e^x alone overflows
    kl                      estimators of the KL to the reference
    aggregate               numbers per token → one number, over an explicit denominator
    losses                  the above combined; one table of objectives
    adaptive_coefficients   weights of loss terms from step to step
    overlong_penalty        the length penalty of a reward
    pass_at_k               pass@k
    bounded_mean            confidence bounds of a mean of bounded numbers
    argument_checks         dtype, rank and dimensions of arguments

The capitals at the end of a name are the tensor's dimensions (``logits_NV`` is [N, V]).
"""
