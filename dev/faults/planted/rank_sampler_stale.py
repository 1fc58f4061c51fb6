"""The second rank samples with the weights of the publication before."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    past = list[dict[str, torch.Tensor]]()

    @torch.no_grad()
    def gather_weights(session):
        real(session)
        own = {name: session.whole_policy.get_parameter(name) for name in session.parameters}
        past.append({name: weight.clone() for name, weight in own.items()})
        for name, weight in own.items():
            weight.copy_(past[-2:][0][name])

    return gather_weights


FAULT = Fault(
    name="rank-sampler-stale",
    numbers=(99,),
    what="one rank samples with the weights of the publication before",
    plant=lambda: patched("truing.learner.session:Session.gather_weights", _wrong),
    expected=("DST001",),
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)
