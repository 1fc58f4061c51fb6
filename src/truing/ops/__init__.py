"""Formulas: tensors in, tensors out. No state, no configuration files, nothing changed in place.

    sampling     logits, history and contract → the logits that are drawn from
    logprobs     log-probabilities and entropy, whole or in chunks of rows
    masks        which tokens a term may train, from their origin
    advantages   rewards of a group → one advantage per rollout
    returns      rewards and values of a trajectory → one advantage per token
    ratios       how far the policy has moved from the one that sampled, and where the clip bites
    kl           how far the policy is from its reference
    aggregate    numbers per token → one number, over an explicit denominator
    unseen       what a mean may be, for all that was seen
    losses       the above, put together; one table of objectives

The capitals that end a name are the tensor's dimensions (``logits_NV`` is [N, V]).
"""
