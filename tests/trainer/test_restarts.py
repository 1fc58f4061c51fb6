"""When a run of several ranks is started again after a loss, and when it ends."""

import signal

import pytest

from truing.distributed.ending import LOST_ANOTHER, Ending, RankEnd, ending_of
from truing.trainer.restarts import run_with_restarts

KILLED = Ending(137, "rank 1 was ended by SIGKILL")


def failed(rank, code):
    return Ending(code, failed=f"rank {rank} ended with exit code {code}")


@pytest.mark.parametrize(
    ("ends", "ending"),
    [
        ([], Ending(0)),
        ([RankEnd(1, -9)], KILLED),
        ([RankEnd(0, LOST_ANOTHER), RankEnd(1, -9)], KILLED),
        ([RankEnd(1, -9), RankEnd(0, -15)], KILLED),
        ([RankEnd(1, -9, node="10.0.0.2")], Ending(137, "rank 1 on node 10.0.0.2 was ended by SIGKILL")),
        ([RankEnd(0, -11), RankEnd(1, -9)], Ending(139, "rank 0 was ended by SIGSEGV; " + KILLED.lost)),
        ([RankEnd(0, -50)], Ending(178, "rank 0 was ended by signal 50")),
        # an error that a rank raised; the launcher ends the others
        ([RankEnd(0, 2), RankEnd(1, -15)], failed(0, 2)),
        ([RankEnd(1, LOST_ANOTHER), RankEnd(0, 1)], failed(0, 1)),
        ([RankEnd(0, 2), RankEnd(1, -9, stopped=True)], failed(0, 2)),
        ([RankEnd(0, -2), RankEnd(1, -2)], Ending(130)),  # Ctrl-C
        ([RankEnd(0, 130), RankEnd(1, 130)], failed(0, 130)),
        # SIGTERM of someone else comes first; of the launcher never
        ([RankEnd(1, -15), RankEnd(0, LOST_ANOTHER)], Ending(143, "rank 1 was ended by SIGTERM")),
        ([RankEnd(0, LOST_ANOTHER), RankEnd(1, -15)], failed(0, LOST_ANOTHER)),
        ([RankEnd(0, LOST_ANOTHER), RankEnd(1, LOST_ANOTHER)], failed(0, LOST_ANOTHER)),
    ],
)
def test_how_a_run_ended(ends, ending):
    assert ending_of(ends) == ending


class Starts:
    """Stands for a launcher: each start makes the run directory as it is told, then ends."""

    def __init__(self, run, *outcomes):
        self.run, self.outcomes, self.resumed, self.printed = run, list(outcomes), [], []

    def __call__(self, resume, is_restart):
        assert is_restart == bool(self.resumed)
        self.resumed.append(resume)
        prepare, ending = self.outcomes.pop(0)
        prepare(self.run)
        return ending

    def run_all(self, resume=False, restarts=3):
        return run_with_restarts(
            self, self.run, resume=resume, restarts=restarts, print_line=self.printed.append
        )


def saved(name):
    """A start that comes as far as this checkpoint; "" is none, None is before the run is on record."""

    def prepare(run):
        if name is None:
            (run / "rollouts").mkdir(parents=True)
            return
        (run / "checkpoints").mkdir(parents=True, exist_ok=True)
        (run / "run.json").write_text("{}")
        if name:
            (run / "checkpoints" / "last").write_text(name)

    return prepare


def test_a_run_without_a_loss_is_started_once(tmp_path):
    starts = Starts(tmp_path / "run", (saved("sft-000001"), Ending(0)))
    assert starts.run_all() == 0
    assert (starts.resumed, starts.printed) == ([False], [])


def test_an_error_that_a_rank_raised_is_not_repeated(tmp_path):
    starts = Starts(
        tmp_path / "run", (saved("sft-000001"), Ending(2, failed="rank 0 ended with exit code 2"))
    )
    assert starts.run_all() == 2
    assert starts.printed == ["rank 0 ended with exit code 2"]


def test_a_loss_resumes_from_the_newest_checkpoint_and_says_so(tmp_path):
    starts = Starts(tmp_path / "run", (saved("sft-000001"), KILLED), (saved("sft-000003"), Ending(0)))
    assert starts.run_all() == 0
    assert starts.resumed == [False, True]
    assert starts.printed == [
        "rank 1 was ended by SIGKILL. Restart 1 of 3, from checkpoint sft-000001",
    ]


def test_restarts_are_counted_and_the_last_loss_ends_the_run_with_its_code(tmp_path):
    starts = Starts(tmp_path / "run", *((saved(f"sft-00000{i}"), KILLED) for i in range(1, 4)))
    assert starts.run_all(restarts=2) == 137
    assert starts.resumed == [False, True, True]
    assert starts.printed[-1] == (
        "rank 1 was ended by SIGKILL; all restarts are used (trainer.restarts = 2), so the run ends."
        f" Go on with --out {tmp_path / 'run'} --resume"
    )


@pytest.mark.parametrize(
    ("name", "place"), [("sft-000001", "a checkpoint after sft-000001"), ("", "the first")]
)
def test_a_second_loss_without_a_new_checkpoint_ends_the_run(name, place, tmp_path):
    starts = Starts(tmp_path / "run", (saved(name), KILLED), (saved(name), KILLED))
    assert starts.run_all() == 137
    assert starts.resumed == [False, True]
    assert f"the loss before was also without {place}" in starts.printed[-1]


def test_no_restart_is_made_if_the_recipe_wants_none(tmp_path):
    starts = Starts(tmp_path / "run", (saved("sft-000001"), KILLED))
    assert starts.run_all(restarts=0) == 137
    assert "trainer.restarts = 0" in starts.printed[0]


def test_a_loss_before_anything_is_on_record_starts_anew_in_the_same_directory(tmp_path):
    starts = Starts(tmp_path / "run", (saved(None), KILLED), (lambda run: None, Ending(0)))
    assert starts.run_all() == 0
    assert starts.resumed == [False, False]
    assert not starts.run.exists()
    assert "from the start: there is no checkpoint yet" in starts.printed[0]


def test_a_directory_that_was_in_use_is_neither_emptied_nor_resumed(tmp_path):
    run = tmp_path / "run"
    saved("sft-000007")(run)
    starts = Starts(run, (lambda run: None, KILLED), (lambda run: None, Ending(2)))
    assert starts.run_all() == 2
    assert starts.resumed == [False, False]
    assert (run / "checkpoints" / "last").read_text() == "sft-000007"


def test_signals_have_the_exit_codes_of_a_shell():
    assert ending_of([RankEnd(0, -signal.SIGKILL)]).exit_code == 137
