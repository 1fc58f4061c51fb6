"""The totals of docs/peers-matrix.md: Truing and its peers by one measure."""

from collections import Counter
from collections.abc import Sequence

from truing.faults.peers.grade import Grade, graded_findings
from truing.faults.peers.judged_runs import JudgedRun
from truing.faults.peers.peer import Peer


def totals(
    pairs: Sequence[tuple[JudgedRun, JudgedRun]], sound: Sequence[JudgedRun], peers: Sequence[Peer]
) -> list[str]:
    """Return the numbers of faults and healthy runs, and a row for each tool."""
    trained = [(run, twin) for run, twin in pairs if run.answers]
    return [
        f"{len(pairs)} faults; {len(pairs) - len(trained)} have no update, since Truing refused to begin."
        f" {len(sound)} healthy runs.",
        "",
        "| | version | faults shown | has a finding | and not without the fault | names the cause"
        " | names a wrong one | failed | healthy runs with a finding, by its own severities |",
        "|---|---|---|---|---|---|---|---|---|",
        _own(pairs, sound),
        _own(trained, sound, ", on the faults shown to all"),
        *(_total(peer, trained, sound) for peer in peers),
    ]


def _own(pairs: Sequence[tuple[JudgedRun, JudgedRun]], sound: Sequence[JudgedRun], of: str = "") -> str:
    """Return Truing's row by the measure of its peers; a refusal counts as a finding."""
    fired_codes = [(run.facts["refused"], _fired(run), _fired(twin)) for run, twin in pairs]
    caught = sum(bool(refused or fired) for refused, fired, _ in fired_codes)
    new = sum(bool(refused or fired - without) for refused, fired, without in fired_codes)
    first = sum(run.facts["cause_rank"] in (0, 1) for run, _ in pairs)
    alarms = Counter(verdict for run in sound for verdict in {verdict for _, verdict in _fired(run)})
    return f"| Truing{of} | | {len(pairs)} | {caught} | {new} | {first} | – | 0 | {_counted(alarms)} |"


def _fired(run: JudgedRun) -> set[tuple[str, str]]:
    return {(each["code"], each["verdict"]) for each in run.facts["fired"]}


def _total(peer: Peer, trained: Sequence[tuple[JudgedRun, JudgedRun]], sound: Sequence[JudgedRun]) -> str:
    grades = [{kind for kind, _ in graded_findings(peer, run, twin)} for run, twin in trained]
    best = Counter(kind for each in grades for kind in each)
    new = sum(bool(each - {Grade.SAME}) for each in grades)
    answers = [run.answers[peer.name] for run in sound if run.answers]
    alarms = Counter(severity for each in answers for severity in {finding.severity for finding in each.said})
    answers += [run.answers[peer.name] for run, _ in trained]
    failed = sum(bool(each.failed) for each in answers)
    version = next((each.version for each in answers if each.version), "")
    return (
        f"| {peer.name} | {version} | {len(trained)} | {sum(map(bool, grades))} | {new} | {best[Grade.CAUSE]}"
        f" | {best[Grade.WRONG]} | {failed} | {_counted(alarms)} |"
    )


def _counted(alarms: Counter[str]) -> str:
    return ", ".join(f"{severity} {count}" for severity, count in sorted(alarms.items())) or "none"
