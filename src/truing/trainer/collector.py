"""Collects the samples of a step, and with ``engine.ahead`` those of later steps while it trains.

Step s samples with weights of version max(first, s − ahead), whatever takes longer: with ``ahead = 0`` with
those that it trains. One thread collects, in order; between two steps it publishes, so that no turn spans a
publication.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, NamedTuple

from truing.algos import StepConfig
from truing.doctor.live_doctor import publication_finding
from truing.engines.base import Publish
from truing.errors import PublicationError
from truing.learner.learner import Learner
from truing.rollouts.step_samples import StepSamples, collect_step_samples
from truing.trainer.events import EventLog
from truing.trainer.session import Session
from truing.utils.phase_clock import phase


class CollectedStep(NamedTuple):
    """The samples of a step, and the receipt of the weights that sampled them; {} if the engine has none."""

    step_samples: StepSamples
    receipt: Mapping[str, Any]


class Collector:
    """Collects the steps of a stage; ``setting_of`` gives the algorithm's setting at a step."""

    def __init__(
        self, session: Session, learner: Learner, stage: str, setting_of: Callable[[int], StepConfig]
    ) -> None:
        self._session, self._algorithm, self._stage = session, learner.algorithm, stage
        self._setting_of = setting_of
        self._steps = learner.setting.stage.steps
        self._ahead = session.recipe.engine.ahead if learner.algorithm.source == "rollouts" else 0
        self._thread = ThreadPoolExecutor(1, "collector")
        self._pending: dict[int, Future[CollectedStep]] = {}

    def collect(self, step: int, version: int) -> CollectedStep:
        """Return the samples of a step; ``version`` is that of the policy's weights.

        Raises:
            PublicationError: The engine holds other weights than were published.
        """
        if self._algorithm.source == "demonstrations":
            return self._collect(step, dict)
        if not self._ahead:
            collected = self._collect(step, lambda: self._session.publish(version))
            self._session.sampler.engine.release_memory()
            return collected
        publish = self._session.prepare_publication(version)
        for later in range(step, min(step + self._ahead + 1, self._steps)):
            if later not in self._pending:
                self._pending[later] = self._thread.submit(self._collect, later, publish)
        with phase("decode"):
            return self._pending.pop(step).result()

    def _collect(self, step: int, publish: Publish) -> CollectedStep:
        receipt = publish()
        setting, mask = self._setting_of(step), self._session.recipe.episode.mask
        samples = collect_step_samples(
            self._session.sampler, self._algorithm, setting, self._stage, step, mask
        )
        return CollectedStep(samples, receipt)

    def wait(self) -> None:
        """Return once nothing is being collected; results are kept."""
        wait(self._pending.values())

    def close(self) -> None:
        """Collect no further step, and drop what was collected; wait for the step that is being collected."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()


@contextmanager
def logged_publication(event_log: EventLog, stage: str, step: int) -> Iterator[None]:
    """Log a publication within the block that fails its proof as a finding."""
    try:
        yield
    except PublicationError as error:
        event_log.log("finding", **publication_finding(error, stage, step))
        raise
