"""The facts of a step: what each measurement gives, and every rule may read.

A fact that is not here, of another version, is read as it is. A number is finite or infinite; where a
measurement may give NaN, its type says so.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from truing.types.values import Count, Flag, Integer, Number, NumberOrNaN, Place, Text


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
    still: NotRequired[list[Text]]


class Digests(TypedDict):
    """A measured digest and the declared one."""

    digest: Text
    declared: Text


class Replay(TypedDict):
    """Draws that were replayed in an audit."""

    tokens: Count
    missed: Count
    largest: Number
    where: Place
    instead: NotRequired[Text]
    rows: NotRequired[dict[Text, tuple[Count, Count]]]
    device: NotRequired[Text]
    rounding: NotRequired[Number]


class Audit(TypedDict):
    """Bets on the sampler's distributions, by feature."""

    tokens: Count
    gains: dict[Text, list[NumberOrNaN]]
    replay: NotRequired[Replay]


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


class Batch(TypedDict):
    """Names and digests of a batch's rows."""

    number: Count
    rows: list[Annotated[list[Text], Field(min_length=3, max_length=3)]]
    distinct: Count
    drawn: Count
    total: Count | None
    tasks: NotRequired[Text]
    alike: NotRequired[Count | None]
    prompts: NotRequired[Text]


class Clip(TypedDict):
    """The gradient's norm at the optimizer step."""

    norm: Number
    eps: Number


class Draws(TypedDict):
    """Draws replayed by the step's own forward."""

    tokens: Count
    missed: Count
    largest: Number
    where: Place


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


class Gradients(GradientDifference):
    """A second gradient beside the trainer's."""

    rows: Count
    device: Text
    pulled: Number
    rounding: NotRequired[Number]
    attention: NotRequired[Number]


class PlainGradient(Gradients):
    """By a plain forward and backward."""

    null: Number


class RowGradients(Gradients):
    """The sum of the rows' gradients."""

    free: Number
    missing_gradient: NotRequired[MissingGradient | None]


class GradedTexts(TypedDict):
    """Graded texts beside the decoded ids."""

    checked: Count
    other: Count
    sample_id: NotRequired[Text]  # of the first that differs
    got: NotRequired[Text]
    expected: NotRequired[Text]


class HeldOut(TypedDict):
    """Training tasks that are evaluation tasks too."""

    tasks: Count
    trained: list[Text]
    count: Count
    declared: Flag


class IdDifference(TypedDict):
    """The first difference of sampled and trained ids."""

    sample_id: Text
    position: Count
    drawn: Integer | None
    trained: Integer | None
    drawn_length: Count
    trained_length: Count


class Ids(TypedDict):
    """The comparison of sampled and trained ids."""

    equal: Count
    total: Count
    rows: Count
    first: IdDifference | None


class Null(TypedDict):
    """How far the trainer is from itself."""

    logprob: Number
    k3: NotRequired[Number]
    rounding: NotRequired[Number]


class Opening(TypedDict):
    """The template's ids before a demonstration."""

    demonstrated: list[Integer]


class Plain(TypedDict):
    """Log-probabilities beside those of a plain forward, by stream."""

    device: Text
    tokens: NotRequired[Count]
    rows: NotRequired[Count]
    trainer: NotRequired[Number]
    alone: NotRequired[Number]
    sampler: NotRequired[Number]
    reference: NotRequired[Number]
    old: NotRequired[Number]
    itself: NotRequired[Number]
    rounding: NotRequired[Number]
    reference_rounding: NotRequired[Number]
    mean: NotRequired[dict[Text, NumberOrNaN]]
    median: NotRequired[dict[Text, NumberOrNaN]]
    where: NotRequired[dict[Text, Place]]


class Rendered(TypedDict):
    """A rendered prompt."""

    tokens: Count
    text: Text


class PromptDifference(TypedDict, total=False):
    """Where a prompt first differs from its task's; empty if none does."""

    sample_id: Text
    task_id: Text
    at: Count
    got: Rendered
    expected: Rendered


class Prompts(PromptDifference):
    """Prompts, rendered again from their tasks."""

    asked: Count
    other: Count


class Tasks(TypedDict):
    """The tasks of a step beside those that its seed gives."""

    asked: Count
    other: Count
    at: NotRequired[Count]
    got: NotRequired[Text]
    expected: NotRequired[Text]
    incomplete: NotRequired[Count]  # groups with other rollouts than 0 to size − 1
    group: NotRequired[Text]  # the first of those
    rollouts: NotRequired[list[Count]]  # of that group
    size: NotRequired[Count]


class PublishedRows(TypedDict):
    """Fixed rows, scored by an engine."""

    largest: Number
    tolerance: Number
    median: NotRequired[Number]


class Publication(TypedDict):
    """The receipt of weights that were published to an engine."""

    version: Integer
    rows: PublishedRows
    surviving: NotRequired[Number | None]
    behind: NotRequired[Integer]


class RowsOfRanks(TypedDict):
    """The rows that each rank computed."""

    due: Count
    missing: list[Text]
    missing_count: Count
    idle: list[Count]
    twice: list[tuple[Text, list[Count]]]
    twice_count: Count
    of_rank: list[list[Text]]
    shared: NotRequired[list[Text]]
    shared_count: NotRequired[Count]


class Ranks(TypedDict):
    """The state of all ranks."""

    state: Mapping[Text, Sequence[Text] | Sequence[Literal[""] | list[NumberOrNaN]]]
    norms: list[list[list[NumberOrNaN]]]
    rows: list[RowsOfRanks]
    draws: NotRequired[list[tuple[Count, Count]]]


class EpochRatios(TypedDict):
    """Importance ratios of an inner epoch: bins with their counts, by the sign of the advantage."""

    scored: Count
    positive: list[tuple[Count, Count]]
    negative: list[tuple[Count, Count]]
    zero: list[tuple[Count, Count]]


class Ratios(TypedDict):
    """Importance ratios of a step."""

    level: Text
    edges: list[Number]
    epochs: list[EpochRatios]


class ReferenceSync(TypedDict):
    """One weight of the reference around a sync."""

    weight: Text
    due: Flag
    moved: Number
    apart: Number
    largest: Number
    rounding: Number


class Regraded(TypedDict):
    """A rollout that was graded again: its reward, or that of one of its turns."""

    sample_id: Text
    stored: Number
    again: NumberOrNaN
    further: NotRequired[list[NumberOrNaN]]  # of a rollout whose second reward differs
    turn: NotRequired[Count]


class Placements(TypedDict):
    """Shares of recorded experts that differ."""

    sets: Number
    here: Number
    before: Number
    after: Number
    other: NotRequired[Number]


class Routes(TypedDict):
    """The experts that engine and trainer selected."""

    device: Text
    rounding: NumberOrNaN
    record: NotRequired[Placements]
    replay: NotRequired[Placements]
    scores: NotRequired[Number]


class SampleUsage(TypedDict):
    """How often the rows of a batch are used."""

    rows: list[Count]
    most: Text
    least: Text
    twice: list[Text]
    allowed: Count
    whole: Flag
    other_minibatches: NotRequired[list[Count]]  # optimizer steps with other samples than declared


class Sync(TypedDict):
    """One layer of the sampler beside the trainer's."""

    layer: Text
    largest: Number
    scale: Number
    eps: NotRequired[Number]


class Update(TypedDict):
    """A second computation of one weight's optimizer step."""

    weight: Text
    largest: Number
    step: Number
    rounding: Number
    swallowed: NotRequired[Number]


@with_config(ConfigDict(extra="allow"))
class Facts(TypedDict, total=False):
    """All facts by name."""

    audit: Audit
    audit_cost: dict[Text, Number]
    backward_sums: BackwardSums
    batch: Batch
    clip: Clip
    draws: Draws
    frozen: Digests
    graded_text: GradedTexts
    gradient: PlainGradient
    held_out: HeldOut
    ids: Ids
    lengths: Mapping[Text, Mapping[Text, tuple[Count, Count, Count, Number]]]
    moments: BeforeAndAfter
    not_audited: list[Text]
    null: Null
    opening: Opening
    optimizer_settings: list[Text]
    plain: Plain
    prompts: Prompts
    publication: Publication
    ranks: Ranks
    ratios: Ratios
    reference: Digests
    reference_sync: ReferenceSync
    regraded: list[Regraded]
    routes: Routes
    row_gradients: RowGradients
    sample_usage: list[SampleUsage]
    stepped: BeforeAndAfter
    sync: Sync
    tasks: Tasks
    update: Update
    weights: Weights


FACTS = TypeAdapter(Facts)
