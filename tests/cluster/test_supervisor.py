"""How ranks end: the cause counts that others only noticed, and nobody is waited for without a limit."""

import time

import pytest

from truing.cluster import actor_calls, supervisor
from truing.cluster.actor_calls import Member, MemberLostError, answers
from truing.cluster.rank_actor import Report
from truing.cluster.supervisor import Supervisor
from truing.distributed.ending import LOST_ANOTHER, Ending
from truing.errors import DistributedError

pytestmark = pytest.mark.integration


@pytest.fixture
def members(address):
    """Ranks that report these exit codes after so many seconds; without a code they never answer."""
    import ray

    class Scripted:
        def __init__(self, code, seconds):
            self.code, self.seconds = code, seconds

        def poll(self, with_output):
            if self.code is None:
                time.sleep(600)
            time.sleep(0.05)
            return Report(self.code if time.monotonic() > self.end else None, notes=["a note"])

        def start(self):
            self.end = time.monotonic() + self.seconds

        def fail(self):
            raise ModuleNotFoundError("No module named 'truing.cluster'")

    made = []

    def make(*scripts):
        actor = ray.remote(Scripted).options(num_cpus=0)
        made.extend(actor.remote(*script) for script in scripts)
        ray.get([each.start.remote() for each in made], timeout=60)
        return [Member(f"rank {rank}", actor, "10.0.0.1") for rank, actor in enumerate(made)]

    yield make
    for actor in made:
        ray.kill(actor)


def ending(members, say=lambda text: None):
    return Supervisor(members, [], say).run()


def test_ranks_that_end_well(members):
    said = []
    assert ending(members((0, 0), (0, 0.3)), said.append) == Ending(0)
    assert set(said) == {"a note"}


def test_the_cause_counts_that_another_rank_noticed_first(members):
    found = ending(members((LOST_ANOTHER, 0), (-9, 1.0)))
    assert found == Ending(137, "rank 1 on node 10.0.0.1 was ended by SIGKILL")


def test_an_error_counts_that_another_rank_noticed_first(members):
    assert ending(members((LOST_ANOTHER, 0), (2, 1.0))) == Ending(
        2, failed="rank 1 on node 10.0.0.1 ended with exit code 2"
    )


def test_a_loss_without_a_cause_ends_the_run_within_a_limit(members, monkeypatch):
    monkeypatch.setattr(supervisor, "CAUSE_SECONDS", 0.5)
    found = ending(members((LOST_ANOTHER, 0), (0, 600)))
    assert found == Ending(LOST_ANOTHER, failed="rank 0 on node 10.0.0.1 ended with exit code 3")


def test_a_rank_that_never_answers_is_named_within_a_limit(members, monkeypatch):
    monkeypatch.setattr(supervisor, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(actor_calls, "READY_SECONDS", 0.1)
    found = ending(members((0, 600), (None, 0)))
    assert found.exit_code == LOST_ANOTHER
    assert found.lost.startswith("rank 1 on node 10.0.0.1 was lost: its Ray process or its node does not")


def test_a_start_that_never_ends_is_named_within_a_limit(members):
    (member,) = members((None, 0))
    call = member.actor.poll.remote(False)
    with pytest.raises(MemberLostError, match=r"starting: rank 0 on node 10\.0\.0\.1 did not answer"):
        answers({call: member}, "starting", 0.5)


def test_what_a_node_lacks_is_named(members):
    (member,) = members((0, 0))
    with pytest.raises(DistributedError, match=r"starting: rank 0 on node 10\.0\.0\.1 failed") as error:
        answers({member.actor.fail.remote(): member}, "starting", 30.0)
    assert "No module named 'truing.cluster'" in error.value.got
    assert not isinstance(error.value, MemberLostError)
