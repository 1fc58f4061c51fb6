"""The probes in their order, each with the algorithms that it says something about."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from truing.errors import RecipeError
from truing.probes import sampler, signal, terms, tokens
from truing.probes.outcome import Finding, Outcome
from truing.probes.rig import POLICIES, SUPERVISED
from truing.probes.table import build


@dataclass(frozen=True)
class Probe:
    """A small problem with a known answer: a folder with a table, and an algorithm, to what was found."""

    name: str
    run: Callable[[Path, str], list[Finding]]
    algos: tuple[str, ...]

    @property
    def title(self) -> str:
        """What it isolates, in a sentence."""
        return (self.run.__doc__ or "").partition(". ")[2].splitlines()[0]


POLICY = tuple(POLICIES)
LADDER = (
    Probe("P0", signal.no_signal, POLICY),
    Probe("P1", signal.bandit, (*POLICY, *SUPERVISED)),
    Probe("P2", signal.two_prompts, (*POLICY, *SUPERVISED)),
    Probe("P3", tokens.ragged, POLICY),
    Probe("P4", tokens.denominators, POLICY),
    Probe("P5", tokens.end_of_turn, POLICY),
    Probe("P6", tokens.world_says, POLICY),
    Probe("P7", tokens.turns, POLICY),
    Probe("P8", terms.kl_alone, POLICY),
    Probe("P9", terms.critic_alone, ("ppo",)),
    Probe("P10", terms.entropy_alone, POLICY),
    Probe("P11", sampler.lag, ("grpo",)),
    Probe("P12", sampler.adapter, ("grpo",)),
)
"""P11 and P12 ask of the sampler, which is the same for every algorithm."""

PROCESSES = 2
"""At one time, of one thread each: tables are too small for more."""


def named(names: Sequence[str]) -> list[Probe]:
    """Probes by name, or all."""
    known = {probe.name: probe for probe in LADDER}
    for name in names:
        if name not in known:
            raise RecipeError("there is no such probe", got=name, expected=", ".join(known))
    return [known[name] for name in names] or list(LADDER)


def climb(probes: Sequence[Probe], algos: Sequence[str] = ()) -> Iterator[Outcome]:
    """The outcome of each probe for each of its algorithms, or of those among ``algos``, in order."""
    chosen = [(probe, algo) for probe in probes for algo in probe.algos if not algos or algo in algos]
    if not chosen:
        known = dict.fromkeys(algo for probe in probes for algo in probe.algos)
        raise RecipeError(
            "these probes say nothing of such an algorithm", got=", ".join(algos), expected=", ".join(known)
        )
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=_one_thread) as pool,
    ):
        table = Path(folder) / "table"
        build(table)
        yield from pool.map(
            _measured, *zip(*((probe.name, algo, table) for probe, algo in chosen), strict=True)
        )


def measure(probe: Probe, algo: str, table: Path) -> Outcome:
    """The outcome of one probe."""
    began = time.perf_counter()
    found = probe.run(table, algo)
    return Outcome(probe.name, algo, tuple(found), time.perf_counter() - began)


def _measured(name: str, algo: str, table: Path) -> Outcome:
    return measure(next(probe for probe in LADDER if probe.name == name), algo, table)


def _one_thread() -> None:
    torch.set_num_threads(1)
