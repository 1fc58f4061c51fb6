"""Facts on tokens: their ids and texts, draws, log-probabilities and experts; see ``facts.py``."""

from typing import NotRequired

from typing_extensions import TypedDict

from truing.types.values import Count, Integer, Number, NumberOrNaN, Place, Text


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


class Draws(TypedDict):
    """Draws replayed by the step's own forward."""

    tokens: Count
    missed: Count
    largest: Number
    where: Place


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


class ForcedPrefixes(TypedDict):
    """Turns that begin with the forced prefix, beside those that their random numbers choose."""

    turns: Count
    forced: Count
    other: Count  # turns that begin otherwise
    rate: Number  # declared share
    rollout: NotRequired[Text]  # the first with such a turn


class EnginePrompts(TypedDict):
    """The ids that the engine read before turns, beside those before them in the trained samples."""

    turns: Count
    other: Count
    sample_id: NotRequired[Text]  # of the first turn with others
    position: NotRequired[Count]  # where that turn begins in its sample


class ProgramCalls(TypedDict):
    """The answers that programs got, beside the turns of the samples that train on them."""

    answers: Count  # that programs got
    foreign: Count  # got under the key of another rollout
    missing: Count  # in no sample
    repeated: Count  # in several samples, or several times in one
    again: Count  # to requests that a client sent again, beside the answer to the first
    outside: Count  # trained tokens that are in no answer
    unread: Count  # turns of samples whose answer no client got, and no call continues
    untrained: Count  # trained tokens of conversations that are not to be trained
    sample_id: NotRequired[Text]  # of the first of those tokens
    position: NotRequired[Count]  # of that token
    rollout: NotRequired[Text]  # of the first answer that is foreign, missing or repeated
    call: NotRequired[Count]  # its number


class ProgramAnswers(TypedDict):
    """The answers that programs got, as the endpoint wrote them, beside what the policy said."""

    answers: Count  # that programs got
    altered: Count  # that say something else
    rollout: NotRequired[Text]  # of the first of these
    call: NotRequired[Count]  # its number


class ProgramRequests(TypedDict):
    """The requests of programs as the endpoint received them, beside what was made of them."""

    requests: Count  # that were answered
    messages: Count  # whose conversation has other messages
    tools: Count  # whose conversation has other tools
    options: Count  # that ask for sampling which the recipe does not declare, and does not override
    beyond: Count  # beyond the calls that the recipe allows a rollout
    flags: Count  # in a conversation that is trained, or left out, against the recipe
    rollout: NotRequired[Text]  # of the first of these
    call: NotRequired[Count]  # its number


class ProgramEnds(TypedDict):
    """Programs that crashed, and those of them whose rollout has a reward."""

    programs: Count
    crashed: Count
    paid: Count
    rollout: NotRequired[Text]  # the first that has one
    reward: NotRequired[Number]


class GradedTexts(TypedDict):
    """Graded texts beside the decoded ids."""

    checked: Count
    other: Count
    sample_id: NotRequired[Text]  # of the first that differs
    got: NotRequired[Text]
    expected: NotRequired[Text]


class Demonstrations(TypedDict):
    """Demonstrated turns beside those of their tasks."""

    checked: Count
    other: Count
    sample_id: NotRequired[Text]  # of the first that differs
    got: NotRequired[Text]
    expected: NotRequired[Text]


class Opening(TypedDict):
    """The template's ids before a demonstration."""

    demonstrated: list[Integer]


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


class LaterPrompts(TypedDict):
    """What stands before later turns, beside the template's text."""

    asked: Count  # turns after the first
    other: Count
    rollout: NotRequired[Text]  # the first with another text
    turn: NotRequired[Count]  # of it, from 0
    got: NotRequired[Text]  # the end of its text
    expected: NotRequired[Text]


class Null(TypedDict):
    """How far the trainer is from itself."""

    logprob: Number
    k3: NotRequired[Number]
    rounding: NotRequired[Number]


class Plain(TypedDict):
    """Log-probabilities beside those of a plain forward, by stream."""

    device: Text
    tokens: NotRequired[Count]
    rows: NotRequired[Count]
    trainer: NotRequired[Number]
    alone: NotRequired[Number]
    sampler: NotRequired[Number]
    support: NotRequired[Number]
    reference: NotRequired[Number]
    old: NotRequired[Number]
    itself: NotRequired[Number]
    rounding: NotRequired[Number]
    reference_rounding: NotRequired[Number]
    sampler_rounding: NotRequired[Number]
    engine: NotRequired[Text]  # precision of an engine that samples beside another trainer, or unknown
    mean: NotRequired[dict[Text, NumberOrNaN]]
    median: NotRequired[dict[Text, NumberOrNaN]]
    where: NotRequired[dict[Text, Place]]


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
