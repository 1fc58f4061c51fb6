"""A diagnosis as text: findings, with carets under their tokens, and clean and unchecked rules."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from truing.doctor.coverage import by_need
from truing.doctor.diagnosis import Diagnosis, is_finding
from truing.doctor.evidence import Step
from truing.doctor.report.healthy_rates import suspect_rate, suspect_rate_text
from truing.doctor.report.repeated_findings import RuleFindings, findings_by_rule, step_of
from truing.doctor.report.token_texts import Decode
from truing.doctor.rule import TAINTS
from truing.doctor.rules import RULES
from truing.doctor.traces.read import is_trace
from truing.doctor.verdict import FINDING_VERDICTS, Finding, RuleResult, Verdict
from truing.utils.format import escape_control, with_count

CONTEXT_TOKENS = 6
"""Tokens on each side of the marked ones; at most twice as many marked ones."""


def with_excerpt(finding: Finding, step: Step, decode: Decode) -> Finding:
    """Return the finding with the text around its place."""
    claim = finding.claim
    if claim.row is None or claim.end <= claim.start or "token_ids" not in step.tokens:
        return finding
    start = step.starts[claim.row]
    low = max(0, claim.start - CONTEXT_TOKENS)
    high = min(step.lengths[claim.row], min(claim.end, claim.start + 2 * CONTEXT_TOKENS) + CONTEXT_TOKENS)
    ids = step.tokens["token_ids"][start + low : start + high].tolist()
    marked = [claim.start <= low + i < claim.end for i in range(len(ids))]
    return replace(finding, excerpt=tuple(zip(decode(ids), marked, strict=True)))


def report_lines(diagnosis: Diagnosis, target: str, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every line with its style, findings first.

    Args:
        diagnosis: of a run.
        target: the checked target.
        verbose: whether to name unchecked rules, each with its missing inputs.
    """
    results = diagnosis.results()
    findings, facts = _findings_and_facts(diagnosis, results)
    for each in findings:
        yield from _finding(each, target)
        yield "", ""
    for each in facts:
        finding = each.shown
        yield (
            f"{finding.claim.verdict} {finding.code} {finding.name}  at {finding.where}{each.repeats}",
            "cyan",
        )
        yield f"  {finding.claim.what}", ""
        yield f"    {'more':<9} truing explain {finding.code}", "dim"
        yield "", ""
    for each in results:
        if each.findings and each.suppressed:
            steps = with_count(len(set(map(step_of, each.findings))), "step")
            yield f"suppressed {each.code} ({steps}): {each.suppressed}", "dim"
    for code, error in diagnosis.rule_errors.items():
        yield (
            f"not checked: {code} raised an error, which is a fault of Truing; please report it: {error}",
            "yellow",
        )
    yield from _summary(results, verbose)


def _findings_and_facts(
    diagnosis: Diagnosis, results: Sequence[RuleResult]
) -> tuple[list[RuleFindings], list[RuleFindings]]:
    """Return findings and facts, without suppressed ones."""
    every = [finding for each in results for finding in each.findings]
    by_rule = findings_by_rule(every, diagnosis.suppressed)
    facts = [each for each in by_rule if each.shown.claim.verdict is Verdict.FACT]
    return [each for each in by_rule if each not in facts], facts


def _finding(each: RuleFindings, target: str) -> Iterator[tuple[str, str]]:
    finding = each.shown
    claim, rule = finding.claim, RULES[finding.code]
    strength = f" 10^{claim.log10_odds:.0f} : 1" if claim.log10_odds is not None else ""
    style = {"PROVEN": "bold red", "EVIDENCE": "bold red", "SUSPECT": "yellow"}.get(
        str(claim.verdict), "cyan"
    )
    yield f"{claim.verdict}{strength} {finding.code} {finding.name}  at {finding.where}{each.repeats}", style
    yield f"  {claim.what}", ""
    for name, text in (("got", claim.got), ("expected", claim.expected)):
        if text:
            yield f"    {name:<9} {text}", ""
    yield from carets(finding.excerpt)
    yield f"    {'fix':<9} {claim.remedy or rule.section('Fix')}", ""
    if claim.verdict is Verdict.SUSPECT:
        yield f"    {'healthy':<9} {suspect_rate_text(finding.code)}", ""
    if claim.verdict in FINDING_VERDICTS and rule.taints:
        twice = "policy" in rule.taints  # the weights of a stage of either kind
        affected = "; ".join(TAINTS[taint] for taint in rule.taints if taint != "sft" or not twice)
        yield f"    {'affects':<9} from {each.first.stage} {each.first.step + 1} on: {affected}", ""
    own = finding.sample_id and not is_trace(Path(target))  # `truing tokens` reads Truing's own runs
    place = ["--stage", finding.stage, "--step", str(finding.step + 1), "--sample", finding.sample_id]
    tokens = f" · {shlex.join(['truing', 'tokens', target, *place])}" if own else ""
    yield f"    {'more':<9} truing explain {finding.code}{tokens}", "dim"


def carets(excerpt: Sequence[tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    """Yield the text of tokens on one line, and below it a caret under each marked character."""
    if not excerpt:
        return
    printable = [(escape_control(text), marked) for text, marked in excerpt]
    yield "    | " + "".join(text for text, _ in printable), ""
    yield (
        "    | " + "".join(("^" if marked else " ") * len(text) for text, marked in printable).rstrip(),
        "red",
    )


def _summary(results: Sequence[RuleResult], verbose: bool) -> Iterator[tuple[str, str]]:
    clean = [each for each in results if each.verdict is Verdict.CLEAN]
    unchecked = [each for each in results if each.verdict is Verdict.NOT_CHECKED]
    findings = sum(is_finding(each) for each in results)
    undecided = sum(each.verdict is Verdict.CANNOT_TELL for each in results)
    cannot_tell = f" {undecided} cannot tell," if undecided else ""
    yield (
        f"{with_count(findings, 'rule')} found something,{cannot_tell}"
        f" {with_count(len(clean), 'is', 'are')} clean,"
        f" {with_count(len(unchecked), 'was', 'were')} not checked",
        "bold red" if findings else "bold green",
    )
    if clean:
        yield "clean: " + ", ".join(f"{each.code} ({each.steps})" for each in clean), "dim"
    if unchecked and not verbose:
        inputs = len({need for each in unchecked for need in each.missing})
        lacking = f"{with_count(len(unchecked), 'rule lacks', 'rules lack')} {with_count(inputs, 'input')}"
        yield f"not checked: {lacking}; --verbose names them", "dim"
        return
    for need, codes in by_need({each.code: each.missing for each in unchecked}):
        yield f"not checked: needs {need}: {', '.join(codes)}", "dim"
    if any(len(each.missing) > 1 for each in unchecked):
        yield "some of these lack more inputs; --json lists all", "dim"


def report_facts(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON."""
    results = diagnosis.results()
    every = findings_by_rule(finding for each in results for finding in each.findings)
    by_rule = [finding_facts(each, diagnosis.suppressed) for each in every]
    return {
        "findings": [facts for facts in by_rule if facts["verdict"] != Verdict.FACT],
        "facts": [facts for facts in by_rule if facts["verdict"] == Verdict.FACT],
        "clean": {each.code: each.steps for each in results if each.verdict is Verdict.CLEAN},
        "not_checked": {each.code: list(each.missing) for each in results if each.missing},
        "not_audited": diagnosis.coverage.never_checked(),
    }


def finding_facts(each: RuleFindings, suppressed: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return a rule's findings as JSON: the strongest, the first and the number; steps count from 1."""
    finding, claim = each.shown, asdict(each.shown.claim)
    del claim["row"], claim["specificity"]
    return {
        "code": finding.code,
        "name": finding.name,
        "stage": finding.stage,
        "step": finding.step + 1,
        "first_stage": each.first.stage,
        "first_step": each.first.step + 1,
        "steps": each.steps,
        "sample_id": finding.sample_id,
        **claim,
        "remedy": finding.claim.remedy or RULES[finding.code].section("Fix"),
        "taints": list(RULES[finding.code].taints),
        "suppressed": suppressed.get(finding.code, ""),
        "healthy": suspect_rate(finding.code) if finding.claim.verdict is Verdict.SUSPECT else {},
        "excerpt": [list(each) for each in finding.excerpt],
    }
