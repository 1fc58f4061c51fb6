"""The probes in their order, each with the algorithms that it tests."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from dev.probes import loss_terms, reward_signal, token_masks, weight_sync
from dev.probes.result import Measurement, ProbeOutcome
from dev.probes.small_trainer import POLICY_ALGOS, SUPERVISED_ALGOS
from dev.probes.table_model import build
from truing.errors import RecipeError
from truing.utils.end_with_parent import end_with_parent


@dataclass(frozen=True)
class Probe:
    """A small problem with a known answer: from a table model's folder and an algorithm to measurements."""

    name: str
    run: Callable[[Path, str], list[Measurement]]
    algos: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return its subject, as a sentence."""
        return (self.run.__doc__ or "").partition(". ")[2].splitlines()[0]


POLICY = tuple(POLICY_ALGOS)
PROBES = (
    Probe("P0", reward_signal.no_signal, POLICY),
    Probe("P1", reward_signal.bandit, (*POLICY, *SUPERVISED_ALGOS)),
    Probe("P2", reward_signal.two_prompts, (*POLICY, *SUPERVISED_ALGOS)),
    Probe("P3", token_masks.unequal_prompts, POLICY),
    Probe("P4", token_masks.denominators, POLICY),
    Probe("P5", token_masks.end_of_turn, POLICY),
    Probe("P6", token_masks.env_tokens, POLICY),
    Probe("P7", token_masks.two_turns, POLICY),
    Probe("P8", loss_terms.kl_alone, POLICY),
    Probe("P9", loss_terms.critic_alone, ("ppo",)),
    Probe("P10", loss_terms.entropy_alone, POLICY),
    Probe("P11", weight_sync.stale_sampler, ("grpo",)),
    Probe("P12", weight_sync.adapter_sync, ("grpo",)),
)
"""P11 and P12 test the sampler, which is the same for every algorithm."""

PROCESSES = 2
"""Processes at one time, of one thread each: tables are too small for more."""


def probes_by_name(names: Sequence[str]) -> list[Probe]:
    """Return probes by name, or all."""
    known = {probe.name: probe for probe in PROBES}
    for name in names:
        if name not in known:
            raise RecipeError("there is no such probe", got=name, expected=", ".join(known))
    return [known[name] for name in names] or list(PROBES)


def run_probes(probes: Sequence[Probe], algos: Sequence[str] = ()) -> Iterator[ProbeOutcome]:
    """Yield the outcome of each probe for each of its algorithms, or of those among ``algos``, in order."""
    chosen = [(probe, algo) for probe in probes for algo in probe.algos if not algos or algo in algos]
    if not chosen:
        known = dict.fromkeys(algo for probe in probes for algo in probe.algos)
        raise RecipeError(
            "these probes do not test such an algorithm", got=", ".join(algos), expected=", ".join(known)
        )
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=_start_process) as pool,
    ):
        table = Path(folder) / "table"
        build(table)
        yield from pool.map(
            _measured, *zip(*((probe.name, algo, table) for probe, algo in chosen), strict=True)
        )


def run_probe(probe: Probe, algo: str, table: Path) -> ProbeOutcome:
    """Return the outcome of one probe."""
    began = time.perf_counter()
    measurements = probe.run(table, algo)
    return ProbeOutcome(probe.name, algo, tuple(measurements), time.perf_counter() - began)


def _measured(name: str, algo: str, table: Path) -> ProbeOutcome:
    return run_probe(next(probe for probe in PROBES if probe.name == name), algo, table)


def _start_process() -> None:
    end_with_parent()
    torch.set_num_threads(1)
