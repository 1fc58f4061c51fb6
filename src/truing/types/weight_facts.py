"""Facts on weights, gradients and the optimizer; see ``facts.py``."""

from typing import NotRequired

from typing_extensions import TypedDict

from truing.types.values import Count, Flag, Number, Place, Text


class BeforeAndAfter(TypedDict):
    """Digests of state after a step and before the next one."""

    before: Text
    changed: Count
    next: Text


class Weights(TypedDict):
    """Digests of a slice of the weights around a step, and of the next step's slice."""

    before: Text
    after: Text
    next: Text
    moved: NotRequired[Flag]  # whether any of them changed
    still: NotRequired[list[Text]]  # that must have changed, and did not


class Digests(TypedDict):
    """A measured digest and the declared one."""

    digest: Text
    declared: Text


class ReferenceDigests(TypedDict):
    """The digest of the reference when it was made, synced or restored, and in an audit the measured one."""

    declared: Text
    digest: NotRequired[Text]


class DeclaredWeights(TypedDict):
    """What trains, beside what the recipe declares; and weights beside the model's files."""

    declared: Count  # weights that the recipe trains
    wrong: list[Text]  # some weights that are not as declared, each with what is wrong
    count: Count  # of those
    other: NotRequired[list[Text]]  # some weights that are not those of the files, each with how they differ
    other_count: NotRequired[Count]


class AdamW(TypedDict):
    """A second computation of one weight's optimizer step."""

    weight: Text
    largest: Number
    step: Number
    rounding: Number
    swallowed: NotRequired[Number]
    count: NotRequired[Count]  # of optimizer steps by the optimizer's state, with this one
    most: NotRequired[Count]  # that the stage can have made until then


class Clip(TypedDict):
    """The gradient's norm at an optimizer step."""

    norm: Number
    eps: Number
    before: NotRequired[Number]  # clipping
    part: NotRequired[Text]  # of what, and in which optimizer step


class Sync(TypedDict):
    """One layer of the sampler beside the trainer's."""

    layer: Text
    largest: Number
    scale: Number
    eps: NotRequired[Number]


class ReferenceSync(TypedDict):
    """One weight of the reference around a sync."""

    weight: Text
    due: Flag
    moved: Number
    apart: Number
    largest: Number
    rounding: Number
    left: NotRequired[Text]  # digest of the reference after it


class Dropout(TypedDict):
    """The adapter's dropout while a step trains."""

    layers: Count
    off: list[Text]  # the first layer without the declared dropout
    count: Count  # of such layers
    seeds: list[Text]  # of the random numbers of each optimizer step, hexadecimal


class MissingGradient(TypedDict):
    """A weight without a gradient that the loss depends on."""

    weight: Text
    moved: Number
    silent: Count
    rounding: NotRequired[Number]


class BackwardSums(TypedDict):
    """The sum of backward gradients beside the optimizer's gradient."""

    weights: Count
    wrong: list[Text]
    count: Count
    relative: Number
    foreign: list[Text]
    steps: Count
    calls: Count
    factor: Number | None
    critic_factor: NotRequired[Number | None]
    ranks: NotRequired[Count]
    silent: NotRequired[list[Text]]
    silent_count: NotRequired[Count]
    missing_gradient: NotRequired[MissingGradient | None]


class Values(TypedDict):
    """Values of the critic beside those of a plain forward, reward units."""

    tokens: Count
    largest: Number  # difference before a token
    scale: Number  # no value is larger: the length of a state times that of the head
    where: Place  # the token with the largest difference
    cut: Count  # truncated ends
    bootstrap: Number  # difference after one; 0 without one


class GradientDifference(TypedDict):
    """Two gradients: their lengths, that of the difference, and the cosine between them."""

    norm: Number
    trainer: Number
    difference: Number
    cosine: NotRequired[Number]


class GradientMass(TypedDict):
    """Σ |token gradient|, and Σ |token gradient| (1 − p)."""

    pulled: Number
    free: Number


class Compared(GradientDifference):
    """Two gradients of some rows."""

    rows: Count
    device: Text


class Gradients(Compared):
    """A second gradient beside the trainer's."""

    pulled: Number
    rounding: NotRequired[Number]
    attention: NotRequired[Number]


class PlainGradient(Gradients):
    """By a plain forward and backward."""

    null: Number
    values: NotRequired[Gradients]  # of the value loss alone


class RowGradients(Gradients):
    """The sum of the rows' gradients."""

    free: Number
    missing_gradient: NotRequired[MissingGradient | None]
    logprob: NotRequired[Number]  # difference of log-probabilities between both forwards, nats
