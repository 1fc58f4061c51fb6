"""SMP011: The engine samples with other weights than were published.

What: After a publication, the engine computes something else than the trainer's weights: an adapter that
was not delivered or is not active, another scale, a layer that was left out, weights of an earlier version,
a cache of old keys and values, or log-probabilities of another distribution.

Why it is silent: Each sync succeeds, and answers look like those of the policy. What was sent says nothing
of what was loaded; even every readable parameter may be new while a packed copy is old. The mismatch looks
like staleness or like the engine's precision.

How it is measured: Each publication has a receipt. It compares three digests (the trainer's weights, the
written files, the step's weights), each layer's response to a vector through the engine's own kernel,
log-probabilities of fixed rows under the published, the previous and the first weights, and those of
sampled turns under the declared sampling parameters. A failed comparison ends the run before anything is
sampled for training. Before the next publication the layers are compared once more, so that weights which
the engine lost or changed meanwhile are named.

The receipt also says which share of the changed elements still differs in the engine's dtype. If most do not,
nobody can tell whether the engine's answers are those of the step: the rule says so.

Healthy look-alikes: A first publication, whose adapter is zero: its rows agree with the base too. In
bfloat16, rows of two versions that differ by less than rounding: the layers' responses decide.

Fix: The finding names the cause. Restart the engine, then resume the run; docs/vllm.md lists the causes
with their remedies.

References: https://github.com/verl-project/verl/issues/7495, https://github.com/huggingface/trl/issues/5312
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

MOST = 0.5
"""Share of changed elements that must differ in the engine's dtype."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim an engine that differs from the trainer, or turns of another publication."""
    receipt = step.facts["publication"]
    rows, surviving = receipt["rows"], receipt.get("surviving")
    if not rows["largest"] <= rows["tolerance"]:
        yield Claim(
            Verdict.PROVEN,
            f"the engine scores fixed rows up to {rows['largest']:.3g} nats from the published weights",
            got=f"{rows['largest']:.3g} nats",
            expected=f"at most {rows['tolerance']:g}",
            specificity=3,
        )
    versions = {
        turn.sampler_version
        for sample, kept in zip(step.samples, step.kept, strict=True)
        for turn in sample.turns
        if kept and turn.weight_digest
    }
    if versions - {receipt["version"]}:
        yield Claim(
            Verdict.PROVEN,
            "turns of this step come from weights that this step's publication did not prove",
            got=f"versions {', '.join(map(str, sorted(versions)))}",
            expected=f"version {receipt['version']} alone",
            specificity=2,
        )
    if surviving is not None and surviving < MOST:  # None is a NaN that was read from the record
        yield Claim(
            Verdict.CANNOT_TELL,
            f"{1 - surviving:.0%} of the weights that the step changed are as before in the engine's dtype",
            got=f"a share of {surviving:.2g} that differs",
            expected=f"at least {MOST:g}, so that rollouts show the step",
            remedy='engine.dtype = "float32", an adapter (lora), or a larger learning rate',
        )


def rounded_adapter() -> Step:
    """Return a step whose change survives the engine's dtype for the most part."""
    return published(surviving=0.9)


def unchanged() -> Step:
    """Return a step after one that changed nothing, as it is read from the record."""
    return published(surviving=None)


def published(**changes: object) -> Step:
    """Return a step whose rollouts follow a publication, with changes of its receipt."""
    rows = {"largest": 3e-5, "tolerance": 1e-3}
    receipt = {"version": 0, "rows": rows, "surviving": 1.0, **changes}
    return changed_step(example_step(), facts={"publication": receipt})


def example() -> Step:
    """The engine's head is that of an earlier version."""
    return published(rows={"largest": 0.13, "tolerance": 1e-3})


RULE = Rule(
    code="SMP011",
    name="publication-not-proven",
    kind="E",
    needs=("facts.publication",),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and "publication" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(published, rounded_adapter, unchanged),
)
