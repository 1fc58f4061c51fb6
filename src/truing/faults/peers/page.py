"""docs/peers-matrix.md: totals, then each run."""

from collections.abc import Sequence
from pathlib import Path

from truing.errors import TruingError
from truing.faults.peers import PEERS
from truing.faults.peers.grade import Grade, graded_findings
from truing.faults.peers.judged_runs import JudgedRun
from truing.faults.peers.peer import Answer, Peer
from truing.faults.peers.totals import totals
from truing.faults.planted import FAULTS
from truing.faults.unplanted_runs import unplanted_run, unplanted_runs

MARK = "<!-- What follows is written by `python -m truing.faults.peers`; what stands above is kept. -->"
STRONG = ("PROVEN", "EVIDENCE")


def write_page(path: Path, runs: Sequence[JudgedRun], peers: Sequence[str]) -> None:
    """Write everything below the mark; the text above it is kept."""
    above = (
        path.read_text(encoding="utf-8").split(MARK)[0] if path.exists() else "# Other diagnosis tools\n\n"
    )
    path.write_text(above + MARK + "\n\n" + tables(runs, [PEERS[name] for name in peers]), encoding="utf-8")


def tables(runs: Sequence[JudgedRun], peers: Sequence[Peer]) -> str:
    """Return totals, faults and healthy runs, as Markdown."""
    pairs = _pairs(runs)
    sound = [each for each in runs if each.facts["healthy"]]
    corpus = [each for each in sound if each.name not in unplanted_runs()]
    head = " | ".join(["Truing", *(peer.name for peer in peers)])
    rule = "|---" * (len(peers) + 2) + "|"
    return "\n".join(
        [
            *totals(pairs, sound, peers),
            "",
            *(f"- {peer.name} is given {peer.input_description}." for peer in peers),
            "",
            f"| fault | {head} |",
            rule,
            *(_fault_row(run, twin, peers) for run, twin in pairs),
            "",
            f"| healthy run | {head} |",
            rule,
            *(_healthy_row(run, peers) for run in corpus),
            "",
            f"| a fault's recipe without it | {head} |",
            rule,
            *(_healthy_row(run, peers) for run in sound if run.name in unplanted_runs()),
            "",
        ]
    )


def _pairs(runs: Sequence[JudgedRun]) -> list[tuple[JudgedRun, JudgedRun]]:
    """Return the run of each fault, and the run of its recipe without it."""
    by_name = {each.name: each for each in runs}
    twins = {each.name: unplanted_run(FAULTS[each.name]).name for each in runs if each.name in FAULTS}
    missing = set(twins.values()) - by_name.keys()
    if missing:
        raise TruingError(
            "findings without the fault are missing",
            got=f"no run {', '.join(sorted(missing))}",
            expected="a run of the recipe of each fault without it",
            remedy="truing faults --twins --keep, which makes them too",
        )
    return [(by_name[name], by_name[twin]) for name, twin in twins.items()]


def _fault_row(run: JudgedRun, twin: JudgedRun, peers: Sequence[Peer]) -> str:
    cells = [_graded(peer, run, twin) if run.answers else "no update" for peer in peers]
    return " | ".join([f"| {run.name}: {run.facts['what']}", _truing(run), *cells]) + " |"


def _healthy_row(run: JudgedRun, peers: Sequence[Peer]) -> str:
    cells = [_plain(run.answers[peer.name]) if run.answers else "no update" for peer in peers]
    return " | ".join([f"| {run.name}", _truing(run), *cells]) + " |"


def _plain(answer: Answer) -> str:
    findings = ", ".join(f"{finding.finding} ({finding.severity})" for finding in answer.said)
    return f"failed: {answer.failed}" if answer.failed else findings or "–"


def _graded(peer: Peer, run: JudgedRun, twin: JudgedRun) -> str:
    if run.answers[peer.name].failed:
        return f"failed: {run.answers[peer.name].failed}"
    grades = [
        f"({finding.finding}, {finding.severity})"
        if kind is Grade.SAME
        else f"**{kind}**: {finding.finding} ({finding.severity})"
        for kind, finding in graded_findings(peer, run, twin)
    ]
    return ", ".join(grades) or "–"


def _truing(run: JudgedRun) -> str:
    """Return the strong verdicts by code, and the suspecting rules."""
    if run.facts["refused"]:
        return "refused"
    codes = dict.fromkeys(
        f"{each['verdict']} {each['code']}" for each in run.facts["fired"] if each["verdict"] in STRONG
    )
    suspected = {each["code"] for each in run.facts["fired"] if each["verdict"] not in STRONG}
    return ", ".join([*codes, *(f"suspects {code}" for code in sorted(suspected))]) or "–"
