"""The journey of a token, as data.

    Task ──▶ Turn* ──▶ Rollout ──▶ RolloutGroup ──▶ Sample ──▶ Batch ──▶ StepRecord

Everything is frozen: a stage that adds something makes a new object. A ``Sample`` holds per-token
streams of one length; index ``t`` always refers to ``token_ids[t]``. A missing number is NaN,
never 0. Shape suffixes (T tokens, B samples, K ids of a support) are listed in docs/notation.md.

Each type is imported from the module that defines it; users import from ``truing``.
"""
