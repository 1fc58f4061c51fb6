"""What a lab shows derives from hypotheses and ledger, and the work of two people joins without conflict."""

import shutil
import subprocess

import pytest
from labs import HEADER, declared, lab_in, run_of

from truing.errors import LabError
from truing.lab.report.write import BLOCK_BEGIN, BLOCK_END, write_report
from truing.lab.run.design import BASELINE
from truing.lab.store.create import create_lab, next_hypothesis_path
from truing.lab.store.lab import open_lab
from truing.lab.store.ledger import Ledger
from truing.lab.verdicts.verdict import judge


def on_disk(lab, hypothesis, values):
    """The lab with runs that are in its ledger, too."""
    lab = declared(lab, hypothesis)
    ledger = Ledger(lab.ledger_folder)
    most = max(map(len, values.values()))
    for label, found in ({BASELINE: [0.0] * most} | values).items():
        for seed, value in enumerate(found):
            lab = lab.with_entry(ledger.write(run_of(lab, hypothesis, label, seed, value)))
    ledger.close()
    return lab


@pytest.fixture
def lab(tmp_path):
    """One validated, one without a run."""
    lab = lab_in(tmp_path / "lab", {"h01": HEADER, "h02": HEADER.replace("2e-3", "5e-3")}, "family = 2")
    return on_disk(lab, lab.hypotheses["h01"], {"changed": [0.9, 1.0, 0.8, 1.1, 0.9, 1.0, 1.2, 0.9]})


def test_a_derived_file_that_was_deleted_comes_back_as_it_was(lab):
    written = write_report(lab)
    before = {path: path.read_bytes() for path in written}
    derived = [path for path in written if path.parent.name != "hypotheses"]
    assert {path.name for path in derived} == {"README.md", "01-experiments-log.md"}
    for path in derived:
        path.unlink()
    write_report(open_lab(lab.root))
    assert {path: path.read_bytes() for path in written} == before


def test_the_readme_of_a_new_lab_comes_back_whole(tmp_path):
    create_lab(tmp_path / "lab", "tiny", None)
    readme = tmp_path / "lab" / "README.md"
    before = readme.read_bytes()
    readme.unlink()
    write_report(open_lab(tmp_path / "lab"))
    assert readme.read_bytes() == before
    assert b"Before each experiment" in before


def test_what_people_wrote_stays(lab):
    write_report(lab)
    readme, log = lab.root / "README.md", lab.root / "01-experiments-log.md"
    readme.write_text("our own words\n\n" + readme.read_text() + "\nand more\n")
    (lab.root / "hypotheses" / "h02-some.md").open("a").write("\nwe think so because …\n")
    log.write_text(log.read_text().replace("| h01 |", "| torn |"))
    write_report(open_lab(lab.root))
    assert readme.read_text().startswith("our own words")
    assert readme.read_text().endswith("and more\n")
    assert "we think so because" in (lab.root / "hypotheses" / "h02-some.md").read_text()
    assert "torn" not in log.read_text(), "what lies between the marks is the ledger's"


def test_a_report_that_is_written_twice_writes_nothing(lab):
    write_report(lab)
    times = {path: path.stat().st_mtime_ns for path in write_report(lab)}
    assert {path: path.stat().st_mtime_ns for path in write_report(lab)} == times


def test_the_status_says_what_is_known(lab):
    write_report(lab)
    text = (lab.root / "README.md").read_text()
    first, second = (line for line in text.splitlines() if line.startswith("| [H0"))
    assert "✅ Validated | high | +0.975 [" in first
    assert "⏳ Pending" in second
    assert "1. h02 Some: experiment" in text


GIT = pytest.mark.skipif(shutil.which("git") is None, reason="NEEDS git: merging of ledgers was not tested")


def git(folder, *words):
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True)


@GIT
def test_two_people_work_apart_and_git_joins_it(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    create_lab(ours, "blank", None)
    for path in (ours / "hypotheses").iterdir():
        path.unlink()
    lab_in(ours, {"h01": HEADER, "h02": HEADER.replace("2e-3", "5e-3")}, "family = 2")
    write_report(open_lab(ours))
    git(ours, "init", "-q", "-b", "main", ".")
    git(ours, "add", "-A")
    git(ours, "commit", "-qm", "a lab")
    git(tmp_path, "clone", "-q", str(ours), str(theirs))
    for folder, name, values in ((ours, "h01", [1.0] * 7), (theirs, "h02", [0.0] * 8)):
        lab = open_lab(folder)
        write_report(on_disk(lab, lab.hypotheses[name], {"changed": values}))
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", name)
    git(theirs, "pull", "-q", "--no-rebase", "--no-edit", str(ours), "main")
    write_report(open_lab(theirs))
    text = (theirs / "README.md").read_text()
    assert text.count(BLOCK_BEGIN) == text.count(BLOCK_END) == 1
    rows = [line for line in text.splitlines() if line.startswith("| [H0")]
    assert len(rows) == 2
    assert "Validated" in rows[0]
    assert "Invalidated" in rows[1]
    assert len(list((theirs / "experimental-results" / "ledger").iterdir())) == 4


def test_entries_of_a_hypothesis_whose_file_is_gone_stay_in_the_log(lab):
    (lab.root / "hypotheses" / "h01-some.md").unlink()
    lab = open_lab(lab.root)
    write_report(lab)
    assert "| h01 | declared | baseline, changed;" in (lab.root / "01-experiments-log.md").read_text()


@pytest.mark.parametrize(
    "text",
    [f"mine\n{BLOCK_BEGIN}\nmine\n", f"mine\n{BLOCK_END}\nmine\n", f"{BLOCK_END}\nmine\n{BLOCK_BEGIN}\n"],
)
def test_a_mark_without_the_other_is_refused_and_nothing_is_lost(lab, text):
    readme = lab.root / "README.md"
    readme.write_text(text)
    with pytest.raises(LabError, match="one mark without the other"):
        write_report(lab)
    assert readme.read_text() == text


def test_two_hypotheses_of_one_number_keep_their_own_evidence(tmp_path):
    """Two people wrote h02 apart; one gets another number, and takes what was run for it along."""
    other = HEADER.replace("the arm helps", "the other arm helps").replace("2e-3", "5e-3")
    folders = tmp_path / "ann", tmp_path / "bob"
    for folder, header, value in zip(folders, (HEADER, other), (1.0, 0.0), strict=True):
        lab = lab_in(folder, {"h01": header}, "family = 2")
        on_disk(lab, lab.hypotheses["h01"], {"changed": [value] * 8})
    for path in (folders[1] / "experimental-results" / "ledger").iterdir():
        shutil.copy(path, folders[0] / "experimental-results" / "ledger" / path.name)
    shutil.copy(folders[1] / "hypotheses" / "h01-some.md", folders[0] / "hypotheses" / "h02-some.md")
    lab = open_lab(folders[0])
    verdicts = {name: judge(lab, each) for name, each in lab.hypotheses.items()}
    assert {name: each.verdict for name, each in verdicts.items()} == {
        "h01": "VALIDATED",
        "h02": "INVALIDATED",
    }
    assert verdicts["h02"].pairs == 8


def test_a_number_that_was_used_says_nothing_of_what_takes_it_again(lab):
    path = lab.root / "hypotheses" / "h01-some.md"
    path.unlink()
    assert next_hypothesis_path(open_lab(lab.root), "New").name.startswith("h03")
    path.write_text("# New\n\n```toml\n" + HEADER.replace("the arm helps", "another claim") + "\n```\n")
    again = open_lab(lab.root)
    assert judge(again, again.hypotheses["h01"]).verdict == "PENDING"
