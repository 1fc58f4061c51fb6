"""Diagnoses for other programs: SARIF 2.1.0 (code scanning) and JUnit XML (CI)."""

from shlex import quote
from typing import Any
from xml.etree import ElementTree

from truing.doctor.diagnosis import Diagnosis, fails, is_finding
from truing.doctor.report.repeated_findings import RuleFindings, findings_by_rule
from truing.doctor.rules import RULES
from truing.doctor.verdict import Verdict

LEVELS = {Verdict.PROVEN: "error", Verdict.EVIDENCE: "error", Verdict.SUSPECT: "warning"}


def sarif(diagnosis: Diagnosis, uri: str) -> dict[str, Any]:
    """Return findings, each with its place in the run, as https://docs.oasis-open.org/sarif/sarif/v2.1.0/.

    Args:
        diagnosis: of the run.
        uri: of the file with the findings.
    """
    results = [
        {
            "ruleId": each.shown.code,
            "level": LEVELS.get(each.shown.claim.verdict, "note"),
            "message": {"text": _text(each)},
            "occurrenceCount": each.steps,
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": uri}},
                    "logicalLocations": [{"fullyQualifiedName": each.shown.where}],
                }
            ],
            **_suppressions(diagnosis.suppressed.get(each.shown.code, "")),
        }
        for each in findings_by_rule(finding for result in diagnosis.results() for finding in result.findings)
    ]
    rules = [
        {
            "id": rule.code,
            "name": rule.name,
            "shortDescription": {"text": rule.title},
            "help": {"text": rule.section("Fix")},
        }
        for rule in diagnosis.rules
    ]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "truing", "rules": rules}}, "results": results}],
    }


def _text(each: RuleFindings) -> str:
    return f"{each.shown.claim.verdict}: {each.shown.claim.what} ({each.shown.where}{each.repeats})"


def _suppressions(reason: str) -> dict[str, Any]:
    """Return the reason of a suppression, if any."""
    return {"suppressions": [{"kind": "external", "justification": reason}]} if reason else {}


def junit(diagnosis: Diagnosis, target: str, strict: bool = False) -> str:
    """Return a test case per rule: failed if it fails the check, skipped if it lacks inputs.

    Args:
        diagnosis: of the run.
        target: the checked target.
        strict: whether a SUSPECT fails; otherwise it is in the output of its case.
    """
    results = diagnosis.results()
    suite = ElementTree.Element("testsuite", name=f"truing check {quote(target)}", tests=str(len(results)))
    failures = 0
    for each in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=each.code[:3], name=f"{each.code} {RULES[each.code].name}"
        )
        if fails(each, strict):
            failures += 1
            ElementTree.SubElement(case, "failure", message=_text(findings_by_rule(each.findings)[0]))
        elif is_finding(each):
            ElementTree.SubElement(case, "system-out").text = _text(findings_by_rule(each.findings)[0])
        elif each.verdict is Verdict.NOT_CHECKED or each.suppressed:
            ElementTree.SubElement(case, "skipped", message=each.suppressed or "; ".join(each.missing))
    suite.set("failures", str(failures))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
