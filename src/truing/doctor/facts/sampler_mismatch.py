"""The metric ``mismatch/max_abs`` of a step, from its rows."""

from truing.types.step_table import StepTable


def sampler_mismatch(table: StepTable) -> dict[str, float]:
    """Return the largest difference of sampler and trainer before the first optimizer step, nats."""
    if not {"sampler_logprob", "origin"} <= set(table.streams):
        return {}
    apart = (table.stream("sampler_logprob") - table.at_first_optimizer_step("new_logprob"))[table.sampled]
    apart = apart[~apart.isnan()]
    return {"mismatch/max_abs": float(apart.abs().max())} if len(apart) else {}
