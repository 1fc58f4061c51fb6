"""The contents of run.json."""

from dataclasses import fields
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from truing.types.sampling_params import SamplingParams
from truing.types.values import Count, Flag, Integer, Number, Text

_TYPES = {float: Number, int: Count, tuple[int, ...]: list[Integer]}

SamplingParamsJson = TypedDict(
    "SamplingParamsJson",
    {  # pyright reads literal keys only
        each.name: NotRequired[_TYPES[each.type]]  # pyright: ignore[reportGeneralTypeIssues]
        for each in fields(SamplingParams)
    },
)
"""The fields of ``SamplingParams``."""


class Model(TypedDict, total=False):
    """The model of a run."""

    name: Text
    path: Text
    digest: Text


class Judged(TypedDict, total=False):
    """What defines the rewards of a run."""

    rewards: dict[Text, Number]
    code: dict[Text, Text]
    eval_tasks: list[Text]
    tasks_hash: Text


class Parent(TypedDict, total=False):
    """The run that a fork goes on from."""

    run: Text
    stage: Text
    step: Count
    changes: list[Text]
    started: Flag


class Machine(TypedDict, total=False):
    """Where a run computes."""

    python: Text
    threads: Count
    device: Text
    replicas: Count


class RunJson(TypedDict, total=False):
    """All keys; a key that a command needs and that is missing is named where it is read."""

    format: Count
    name: Text
    created: Text
    recipe: dict[Text, Any]
    sampling_params: SamplingParamsJson
    model: Model
    trainable_digest: Text
    bos_id: Integer | None
    tools: list[Text]
    judged: Judged
    parent: Parent
    demonstrated: dict[Text, list[Number]]
    demonstrated: dict[Text, list[Number]]  # what demonstrations earned at the start, by family of tasks
    given_in_python: list[Text]
    versions: dict[Text, Text] | None
    machine: Machine
    tokenizer: Text


RUN_JSON = TypeAdapter(RunJson)

FORMAT = 2
"""Version of the files of a run directory: its tables hold the passes of every optimizer step."""
