"""Which rule finds which fault: the page is what the code says, and nobody is left out."""

from folders import ROOT

from truing.doctor.rules import RULES
from truing.faults.catalogue import CATALOGUE, page
from truing.faults.planted import FAULTS

DOCS = ROOT / "docs"


def test_every_fault_has_a_rule_or_a_reason_and_every_rule_exists():
    assert list(CATALOGUE) == list(range(1, 89))
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
