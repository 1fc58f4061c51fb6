"""The critic's values by a plain forward of some rows: before their tokens, and after a truncated end."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from truing.distributed.sharded_tensors import whole
from truing.distributed.sharding import computing_device, in_forward
from truing.doctor.oracle.expert_routes import routes_imposed
from truing.learner.learner import Learner
from truing.measurements.checked_rows import checked_rows, without_dropout
from truing.measurements.measurement import Measurement
from truing.models.forward.autocast import autocast
from truing.models.forward.hidden_states import routes_to_replay
from truing.models.forward.rounding_noise import is_coarse
from truing.models.forward.score import causal_model, computed_precision
from truing.types.sample import Sample
from truing.types.weight_facts import Values


class PlainValues(Measurement):
    """Values of some rows, and of one that was cut, by a plain forward of the critic; in float32 alone."""

    facts = ("critic_values",)
    cost = "a forward of 1 to 5 rows; nothing without a critic"
    audit = "rows"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Compute the rows."""
        step, learner = self.step, self.step.learner
        precise = not is_coarse(computed_precision(learner.model)) and not step.has_dropout
        if learner.critic is None or not precise:
            return
        rows = checked_rows(step, minibatch)
        cut = [row for row in minibatch if row.truncated]
        if cut and not any(row.truncated for row in rows):
            rows.append(cut[step.step % len(cut)])
        if rows:
            with without_dropout(learner):
                self.found = {"critic_values": value_fact(learner, rows)}


@torch.no_grad()
def value_fact(learner: Learner, rows: Sequence[Sample]) -> Values:
    """Return how far recorded values are from plain ones: before tokens, and after truncated ends."""
    fact: Values = {"tokens": 0, "largest": 0.0, "scale": 0.0, "where": ("", 0), "cut": 0, "bootstrap": 0.0}
    for row in rows:
        end = [len(row)] if row.truncated else []
        places = [*row.value_mask.nonzero()[:, 0].tolist(), *end]
        if not places:
            continue
        state_KD = states_before(learner, row, places)
        plain_K = values_of(learner, state_KD).cpu().double()
        recorded_K = torch.cat([row.value, torch.tensor([row.bootstrap_value])])[places].double()
        difference_K = (recorded_K - plain_K).abs().nan_to_num(torch.inf)
        fact["scale"] = max(fact["scale"], _largest_value(learner, state_KD))
        if row.truncated:
            fact["cut"] += 1
            fact["bootstrap"] = max(fact["bootstrap"], float(difference_K[-1]))
            difference_K = difference_K[:-1]
        fact["tokens"] += len(difference_K)
        if len(difference_K) and float(difference_K.max()) >= fact["largest"]:
            worst = int(difference_K.argmax())
            fact["largest"], fact["where"] = float(difference_K[worst]), (row.sample_id, places[worst])
    return fact


def states_before(learner: Learner, row: Sample, places: Sequence[int]) -> Tensor:
    """Return the hidden states [K, D] before K tokens of a row, by the decoder's own forward; with gradients.

    The place after the last token is the state after the end.
    """
    assert learner.critic is not None
    causal = learner.critic.trunk or causal_model(learner.model)
    root = learner.critic if learner.critic.trunk is not None else causal  # of what FSDP2 gathers
    (routes,) = (learner.critic.trunk is None and routes_to_replay(causal, [row])) or (None,)
    imposed = nullcontext() if routes is None else routes_imposed(causal.get_decoder(), routes)
    ids = row.token_ids[None].to(computing_device(causal))
    with autocast(causal), imposed:
        states = in_forward(root, lambda: causal.get_decoder()(input_ids=ids, use_cache=False))
    return states.last_hidden_state[0, torch.tensor(places) - 1]


def values_of(learner: Learner, state_KD: Tensor) -> Tensor:
    """Return the critic's values [K] of states."""
    critic = learner.critic
    assert critic is not None
    return in_forward(critic, lambda: critic.head(state_KD.to(critic.head.weight.dtype))[:, 0].clone())


def _largest_value(learner: Learner, state_KD: Tensor) -> float:
    """Return the length of the longest state times that of the head: no value is larger, but for the bias."""
    assert learner.critic is not None
    weight = whole(learner.critic.head.weight.detach())
    return float(state_KD.double().norm(dim=1).max() * weight.double().norm())
