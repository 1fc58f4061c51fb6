"""The gradient of the loss per value of the critic, beside its closed form."""

import torch

from truing.algos import UpdateConfig
from truing.config.stages import PpoConfig
from truing.doctor.oracle.token_gradients import expected_value_gradients
from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts, Value


class ValueGradient(Measurement):
    """The gradient of the loss per value of the critic, beside its closed form."""

    facts = ("value",)
    cost = "arithmetic per token"

    def after_step(self) -> Facts:
        """Return the largest difference; nothing without a critic."""
        first = self.step.optimizer_steps[0]
        if "value_gradient" not in first.streams:
            return {}
        return {"value": value_fact(first, self.step.learner.setting, dropout=self.step.has_dropout)}


def value_fact(first: OptimizerStep, setting: UpdateConfig, *, dropout: bool) -> Value:
    """Compare the gradient of the loss with respect to the critic's values with its closed form.

    At the first update the values are those of the samples, unless dropout has moved them: then they are
    those of the update itself.
    """
    stage, samples = setting.stage, first.samples
    assert isinstance(stage, PpoConfig)  # the only stage with a critic
    value_N, got_N = (first.streams[name].nan_to_num(0.0) for name in ("new_value", "value_gradient"))
    got_N = got_N.double()
    old_N, returns_N, mask_N = (
        torch.cat([getattr(sample, name) for sample in samples])
        for name in ("value", "returns", "value_mask")
    )
    value_N = value_N if dropout else old_N
    expected_N = expected_value_gradients(
        value_N, old_N, returns_N, mask_N, stage.value_coef, stage.value_clip
    )
    worst = int((got_N - expected_N).abs().argmax())
    owner = [(sample.sample_id, t) for sample in samples for t in range(len(sample))][worst]
    large_N = expected_N.abs() > 0.5 * expected_N.abs().max()  # large ones show a factor best
    return {
        "tokens": int(mask_N.sum()),
        "scale": float(expected_N.abs().max()),
        "largest": float((got_N - expected_N).abs().max()),
        "factor": float((got_N[large_N] / expected_N[large_N]).median()) if large_N.any() else 1.0,
        "where": owner,
    }
