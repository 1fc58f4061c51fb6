"""What a finding is worth: does it name the cause, a symptom, or a cause that is not there?"""

from enum import StrEnum

from truing.faults.peers.judged_runs import JudgedRun
from truing.faults.peers.peer import Peer, PeerFinding


class Grade(StrEnum):
    """From the best to what says nothing of the fault."""

    CAUSE = "the cause"
    SYMPTOM = "a symptom"
    WRONG = "a wrong cause"
    SAME = "the same without the fault"


def grade_finding(peer: Peer, said: PeerFinding, run: JudgedRun, without_fault: JudgedRun) -> Grade:
    """Of a finding in the run of a fault, whose recipe without the fault is ``twin``."""
    told = {(each.finding, each.severity) for each in without_fault.answers[peer.name].said}
    if (said.finding, said.severity) in told:
        return Grade.SAME
    if run.name in peer.causes.get(said.finding, ()):
        return Grade.CAUSE
    return Grade.WRONG if said.finding in peer.cause_findings else Grade.SYMPTOM


def graded_findings(peer: Peer, run: JudgedRun, without_fault: JudgedRun) -> list[tuple[Grade, PeerFinding]]:
    """Of every finding, the best first."""
    found = [(grade_finding(peer, said, run, without_fault), said) for said in run.answers[peer.name].said]
    return sorted(found, key=lambda each: list(Grade).index(each[0]))
