"""Facts on the samples of a step: their tasks, rewards, use, engine and ranks; see ``facts.py``."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from truing.types.values import Count, Flag, Integer, Number, NumberOrNaN, Text


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


class HeldOut(TypedDict):
    """Training tasks that are evaluation tasks too."""

    tasks: Count
    trained: list[Text]
    count: Count
    declared: Flag


class Tasks(TypedDict):
    """The tasks of a step beside those that its seed gives."""

    asked: Count
    other: Count
    at: NotRequired[Count]
    got: NotRequired[Text]
    expected: NotRequired[Text]
    params: NotRequired[Count]  # rollouts with other sampling parameters than declared
    drawn_with: NotRequired[Text]  # the parameters of the first
    declared: NotRequired[Text]
    sampled: NotRequired[Count]  # rollouts of the policy
    graded: NotRequired[Count]  # of these, with a reward
    incomplete: NotRequired[Count]  # groups with other rollouts than 0 to size − 1
    group: NotRequired[Text]  # the first of those
    rollouts: NotRequired[list[Count]]  # of that group
    size: NotRequired[Count]


class Replies(TypedDict):
    """The environment's messages and final states of rollouts, beside those that their own episodes gave."""

    checked: Count  # messages; those of programs are in no reply
    other: Count
    outcomes: NotRequired[Count]  # final states that were compared
    rollout: NotRequired[Text]  # the first with another one
    reply: NotRequired[Count]  # its number in that rollout, from 0
    got: NotRequired[Text]
    given_to: NotRequired[Text]  # the rollout whose episode gave it; "" if none of the step did
    other_outcomes: NotRequired[Count]  # rollouts with another final state than their own episode's
    outcome_of: NotRequired[Text]  # the first of those
    unended: NotRequired[Count]  # rollouts that count as ended, after a reply to their last turn
    unended_of: NotRequired[Text]  # the first of those
    unlike: NotRequired[Count]  # rollouts whose episode went otherwise than one of the same task and turns
    unlike_of: NotRequired[tuple[Text, Text]]  # the first pair of those


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


class Regraded(TypedDict):
    """A rollout that was graded again: its reward, or that of one of its turns."""

    sample_id: Text
    stored: NumberOrNaN
    again: NumberOrNaN
    turn: NotRequired[Count]


class Graded(TypedDict):
    """Stored rewards beside those that graders returned for the same rollouts."""

    rollouts: Count
    pairs: list[Regraded]  # of all rollouts, if one differs; ``again`` is NaN for one that was not graded
    other_input: NotRequired[Count]  # rollouts that were graded with another task or text
    input_of: NotRequired[Text]  # the first
    input: NotRequired[Text]  # what its grader was given


class SampleUsage(TypedDict):
    """How often the rows of a batch are used."""

    rows: list[Count]
    most: Text
    least: Text
    twice: list[Text]
    allowed: Count
    whole: Flag
    other_minibatches: NotRequired[list[Count]]  # optimizer steps with other samples than declared
