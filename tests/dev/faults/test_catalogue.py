"""Which rule finds which fault: the page is what the code says, and nobody is left out."""

import pytest
from folders import ROOT

from dev.faults.catalogue import CATALOGUE, page
from dev.faults.planted import FAULTS
from truing.doctor.rules import RULES

DOCS = ROOT / "docs"


def test_every_fault_has_a_rule_or_a_reason_and_every_rule_exists():
    assert list(CATALOGUE) == list(range(1, 127))
    for known in CATALOGUE.values():
        assert known.codes or known.also, known.what
        assert set(known.codes) <= RULES.keys()


def test_what_is_planted_is_in_the_catalogue_and_its_rules_are_among_those_expected():
    for fault in FAULTS.values():
        assert set(fault.numbers) <= CATALOGUE.keys(), fault.name
        codes = {code for number in fault.numbers for code in CATALOGUE[number].codes}
        # some are of no number: what is declared, and not done
        assert not fault.expected or not fault.numbers or codes & set(fault.expected), fault.name


def test_the_page_in_the_docs_is_the_one_that_the_command_writes():
    assert (DOCS / "coverage.md").read_text() == page()


MET = {
    "verl#7495": "every sync ships the frozen base",
    "trl#5312": "no sync with sleep mode",
    "trl#6344": "a custom worker switches the adapter's transfer off, and the version is counted up",
    "labs-molt#124": "an answer in flight while weights are replaced",
    "NeMo-RL#3696": "a merge onto bfloat16 loses the step",
}


@pytest.mark.parametrize("issue", MET)
def test_what_others_met_between_trainer_and_engine_is_planted_and_refused(issue):
    """tests/engines/vllm/test_vllm_faults.py shows that each refusal comes, and names its cause."""
    planted = [fault for fault in FAULTS.values() if issue in fault.seen]
    assert planted
    assert all(fault.refusal for fault in planted)
    assert issue in page()
