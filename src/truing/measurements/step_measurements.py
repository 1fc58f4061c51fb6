"""All measurements of a step: the list, and the hooks that call them while the step trains."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor

from truing.learner.hooks import StepHooks
from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.adamw_float64 import AdamWStep
from truing.measurements.adapter_dropout import AdapterDropout
from truing.measurements.audit_schedule import COST_PER_TOKEN, AuditSchedule, audited_tokens, step_cost
from truing.measurements.clipped_gradient import ClippedGradient
from truing.measurements.controllers import Controllers
from truing.measurements.critic_head import CriticHead
from truing.measurements.declared_weights import TrainedWeights
from truing.measurements.demonstrations import DecodedDemonstrations
from truing.measurements.draw_audit import DrawAudit
from truing.measurements.draw_replay import ReplayedDraws
from truing.measurements.environment_replies import EnvironmentReplies, PromptsOfTurns
from truing.measurements.expert_routes import ExpertRoutes
from truing.measurements.forced_prefixes import PrefixesOfTurns
from truing.measurements.graded_text import DecodedTexts
from truing.measurements.later_prompts import LaterTurns
from truing.measurements.lengths import AnswerLengths
from truing.measurements.measurement import AuditKind, MeasuredStep, Measurement
from truing.measurements.moment_digests import MomentDigests
from truing.measurements.opening import DemonstrationOpening
from truing.measurements.optimizer_gradient import OptimizerGradient
from truing.measurements.plain_forward import PlainForward
from truing.measurements.plain_gradient import PlainBackward
from truing.measurements.plain_values import PlainValues
from truing.measurements.program_calls import AnswersOfPrograms, EndsOfPrograms
from truing.measurements.program_requests import RequestsOfPrograms, WrittenAnswers
from truing.measurements.prompts import RenderedPrompts
from truing.measurements.publication import PublishedWeights
from truing.measurements.rank_states import RankStates
from truing.measurements.ratio_histogram import RatioHistograms
from truing.measurements.reference_sync import ReferenceSync
from truing.measurements.regraded import RegradedRollouts
from truing.measurements.row_gradients import SumOfRows
from truing.measurements.sample_usage import UsedSamples
from truing.measurements.sampled_ids import SampledIds
from truing.measurements.sampler_layer import SamplerLayer
from truing.measurements.stored_rewards import StoredRewards
from truing.measurements.task_order import TaskOrder
from truing.measurements.unchanged_weights import FrozenWeights, ReferenceDigest
from truing.measurements.weight_digests import WeightDigests
from truing.models.lora import modes_kept
from truing.types.batch import Batch
from truing.types.facts import Facts
from truing.types.sample import Sample
from truing.types.step_table import StepTable
from truing.utils.memory import is_out_of_memory, release_freed_memory
from truing.utils.phase_clock import phase

MEASUREMENTS: Sequence[type[Measurement]] = (
    PublishedWeights,
    ReferenceSync,
    TrainedWeights,
    WeightDigests,
    MomentDigests,
    AdamWStep,
    ClippedGradient,
    CriticHead,
    Controllers,
    AdapterDropout,
    OptimizerGradient,
    ReplayedDraws,
    UsedSamples,
    RenderedPrompts,
    LaterTurns,
    TaskOrder,
    EnvironmentReplies,
    SampledIds,
    PromptsOfTurns,
    AnswersOfPrograms,
    WrittenAnswers,
    RequestsOfPrograms,
    EndsOfPrograms,
    PrefixesOfTurns,
    DecodedTexts,
    DecodedDemonstrations,
    DemonstrationOpening,
    StoredRewards,
    AnswerLengths,
    RatioHistograms,
    # audits, in the order in which they are measured
    FrozenWeights,
    ReferenceDigest,
    SamplerLayer,
    SumOfRows,
    PlainForward,
    PlainValues,
    ExpertRoutes,
    DrawAudit,
    RegradedRollouts,
    PlainBackward,
    RankStates,  # the last: it compares what the others have measured
)
"""Each fact and metric is of one measurement; ``docs/measurements.md`` shows them."""


class StepMeasurements(StepHooks):
    """All measurements of one step; ``metrics`` are theirs once ``facts`` is called."""

    def __init__(self, step: MeasuredStep, schedule: AuditSchedule) -> None:
        self.step, self.schedule = step, schedule
        self.metrics: dict[str, float] = {}
        self._audit_costs: dict[str, float] = {}
        self._not_audited: list[AuditKind] = []
        with phase("doctor"):
            self._measurements = [kind(step) for kind in MEASUREMENTS]

    @contextmanager
    def at_optimizer(self) -> Iterator[None]:
        """Call the measurements at each ``optimizer.step()`` within the block."""
        optimizer = self.step.learner.optimizer
        handles = [
            optimizer.register_step_pre_hook(self._before_optimizer),
            optimizer.register_step_post_hook(self._after_optimizer),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @phase("doctor")
    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Run the audits that are due."""
        step, learner = self.step, self.step.learner
        steps, has_reference = step.recipe.stage(step.stage).steps, learner.reference is not None
        if not (due := self.schedule.due(steps, has_reference=has_reference)):
            return
        tokens = audited_tokens(step, minibatch)
        for each in self._measurements:
            if each.audit in due and each.audit not in self._not_audited:
                with self._out_of_memory(each.audit):
                    each.before_optimizer_steps(minibatch)
                if each.audited_tokens is not None:
                    tokens[each.audit] = each.audited_tokens
        self._audit_costs = {name: COST_PER_TOKEN[name] * tokens[name] for name in due}

    @contextmanager
    def on_backward(self, this: OptimizerStep) -> Iterator[None]:
        """Enter the blocks of all measurements."""
        with ExitStack() as stack:
            for each in self._measurements:
                stack.enter_context(each.on_backward(this))
            yield

    def mass_below_mask(self, this: OptimizerStep, batch: Batch) -> Tensor | None:
        """Return the tokens that a measurement needs."""
        masks = [each.mass_below_mask(this, batch) for each in self._measurements]
        return next((mask for mask in masks if mask is not None), None)

    @contextmanager
    def on_optimizer(self, this: OptimizerStep) -> Iterator[None]:
        """Enter the blocks of all measurements."""
        with ExitStack() as stack:
            for each in self._measurements:
                stack.enter_context(each.on_optimizer(this))
            yield

    @phase("doctor")
    def facts(self, optimizer_steps: Sequence[OptimizerStep], table: StepTable) -> Facts:
        """Return all facts of a step that has trained, and count its cost."""
        step = self.step
        step.optimizer_steps, step.table = optimizer_steps, table
        for each in self._measurements:
            found = each.after_step()
            assert found.keys() <= set(each.facts), f"{type(each).__name__} gives {[*found]}"
            assert each.numbers.keys() <= set(each.metrics), f"{type(each).__name__} gives {[*each.numbers]}"
            step.facts.update(found)
            self.metrics.update(each.numbers)
        costs = {"step": step_cost(step), **self._audit_costs}
        self.schedule.count(costs)
        step.facts["audit_cost"] = costs
        if self._not_audited:
            step.facts["not_audited"] = [*self._not_audited]
        return step.facts

    @phase("doctor")
    def _before_optimizer(self, *_: object) -> None:
        for each in self._measurements:
            each.before_optimizer()

    @phase("doctor")
    def _after_optimizer(self, *_: object) -> None:
        for each in self._measurements:
            each.after_optimizer()

    @contextmanager
    def _out_of_memory(self, audit: AuditKind) -> Iterator[None]:
        """Go on without an audit whose memory runs out; several ranks end."""
        learner = self.step.learner
        try:
            with modes_kept(learner.model):
                yield
        except (RuntimeError, MemoryError) as error:
            if learner.ranks.size > 1 or not is_out_of_memory(error):
                raise
            self._not_audited.append(audit)
        else:
            return
        learner.optimizer.zero_grad(set_to_none=True)
        release_freed_memory()  # after the error, whose frames hold tensors
