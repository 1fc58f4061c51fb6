"""The grade of a peer's finding: the cause, a symptom, or a wrong cause."""

from enum import StrEnum

from truing.faults.peers.judged_runs import JudgedRun
from truing.faults.peers.peer import Peer, PeerFinding


class Grade(StrEnum):
    """Grades from the best to unrelated findings."""

    CAUSE = "the cause"
    SYMPTOM = "a symptom"
    WRONG = "a wrong cause"
    SAME = "the same without the fault"


def grade_finding(peer: Peer, finding: PeerFinding, run: JudgedRun, without_fault: JudgedRun) -> Grade:
    """Return the grade of a finding in the run of a fault; ``twin`` is its recipe without the fault."""
    also_without_fault = {(each.finding, each.severity) for each in without_fault.answers[peer.name].said}
    if (finding.finding, finding.severity) in also_without_fault:
        return Grade.SAME
    if run.name in peer.causes.get(finding.finding, ()):
        return Grade.CAUSE
    return Grade.WRONG if finding.finding in peer.cause_findings else Grade.SYMPTOM


def graded_findings(peer: Peer, run: JudgedRun, without_fault: JudgedRun) -> list[tuple[Grade, PeerFinding]]:
    """Return the grades of all findings, the best first."""
    graded = [
        (grade_finding(peer, finding, run, without_fault), finding) for finding in run.answers[peer.name].said
    ]
    return sorted(graded, key=lambda each: list(Grade).index(each[0]))
