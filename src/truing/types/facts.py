"""The facts of a step: what each measurement gives, and every rule may read.

A fact that is not here, of another version, is read as it is. A number is finite or infinite; where a
measurement may give NaN, its type says so.
"""

from collections.abc import Mapping

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from truing.types.batch_facts import (
    Batch,
    Graded,
    HeldOut,
    Publication,
    Ranks,
    Regraded,
    Replies,
    SampleUsage,
    Tasks,
)
from truing.types.token_facts import (
    Audit,
    Demonstrations,
    Draws,
    EnginePrompts,
    ForcedPrefixes,
    GradedTexts,
    Ids,
    LaterPrompts,
    Null,
    Opening,
    Plain,
    ProgramAnswers,
    ProgramCalls,
    ProgramEnds,
    ProgramRequests,
    Prompts,
    Ratios,
    Routes,
)
from truing.types.values import Count, Number, Text
from truing.types.weight_facts import (
    AdamW,
    BackwardSums,
    BeforeAndAfter,
    Clip,
    DeclaredWeights,
    Digests,
    Dropout,
    PlainGradient,
    ReferenceDigests,
    ReferenceSync,
    RowGradients,
    Sync,
    Values,
    Weights,
)


@with_config(ConfigDict(extra="allow"))
class Facts(TypedDict, total=False):
    """All facts by name."""

    audit: Audit
    audit_cost: dict[Text, Number]
    backward_sums: BackwardSums
    batch: Batch
    clip: Clip
    controllers: Mapping[Text, Number]  # of the recipe, by the names of ``Setup``
    critic_values: Values
    declared_weights: DeclaredWeights
    demonstrations: Demonstrations
    draws: Draws
    dropout: Dropout
    engine_prompts: EnginePrompts
    program_calls: ProgramCalls
    program_answers: ProgramAnswers
    program_requests: ProgramRequests
    program_ends: ProgramEnds
    forced_prefixes: ForcedPrefixes
    frozen: Digests
    generation_tokens: Mapping[Text, Count]  # in the loss, of the generation that a sample is from
    graded: Graded
    graded_text: GradedTexts
    gradient: PlainGradient
    held_out: HeldOut
    ids: Ids
    later_prompts: LaterPrompts
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
    rates: list[Number]  # of policy and critic, by the optimizer
    ratios: Ratios
    reference: ReferenceDigests
    reference_sync: ReferenceSync
    regraded: list[Regraded]
    replies: Replies
    routes: Routes
    row_gradients: RowGradients
    sample_usage: list[SampleUsage]
    stepped: BeforeAndAfter
    sync: Sync
    tasks: Tasks
    adamw: AdamW
    weights: Weights


FACTS = TypeAdapter(Facts)
