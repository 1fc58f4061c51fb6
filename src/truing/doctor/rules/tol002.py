"""TOL002: A rollout has replies or a final state that its own episode did not give.

What: A message of a tool or of the environment is in a rollout, but the episode of that rollout never gave
it, or gave it at another place: it is the reply of another rollout, of an earlier turn, cut, or missing. Or
the final state that rewards judge is not that of the rollout's own episode. Or two episodes of a task answer
the same turns otherwise, because one has what the other left behind. Or a rollout counts as ended by the
environment, which has replied to its last turn.

Why it is silent: Each message is a valid reply. The policy learns to ignore its tools, since what they say
does not follow from what it asked, and the reward of an episode that went well is given to turns that read
something else.

How it is measured: Where an episode lives, a hash of each of its replies is kept: of the role, the call that
is answered, and the first `episode.max_reply_chars` characters; and one of its final state. At every step the
messages and the final state of each rollout must have the hashes of its own episode, one by one. Rollouts of
one task with the same turns must have the same hashes; as an environment may draw, this alone is suspect.

Healthy look-alikes: A reply that the recipe's limit shortens. Rollouts that failed, whose last reply may
have come too late. Two episodes that give the same reply.

Fix: Give each episode a state of its own. Look for what carries replies from tools to rollouts: results in
the order in which they are done, a list that is shared, an index of another list.

References: docs/agents.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def _row_of(step: Step, rollout: str) -> int | None:
    return next((i for i, sample in enumerate(step.samples) if sample.rollout_id == rollout), None)


def judge(step: Step) -> Iterator[Claim]:
    """Claim any reply, or final state, of another episode."""
    fact = step.facts["replies"]
    if fact["other"]:
        rollout, given_to = fact.get("rollout", ""), fact.get("given_to", "")
        source = f", which the episode of {given_to} gave" if given_to else ""
        yield Claim(
            Verdict.PROVEN,
            f"{fact['other']} of {fact['checked']} replies are not those of the rollout's own episode",
            got=f"{fact.get('got', '')!r} as reply {fact.get('reply', 0) + 1} of {rollout}{source}",
            expected="what its own episode replied",
            row=_row_of(step, rollout),
            specificity=4.6,
        )
    if outcomes := fact.get("other_outcomes", 0):
        rollout = fact.get("outcome_of", "")
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(outcomes, 'rollout is', 'rollouts are')} judged by another final state"
            " than that of the rollout's own episode",
            got=f"another one in {rollout}",
            expected="the outcome of its own episode",
            row=_row_of(step, rollout),
            specificity=4.7,
        )
    if unended := fact.get("unended", 0):
        rollout = fact.get("unended_of", "")
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(unended, 'rollout counts', 'rollouts count')} as ended by the environment, which"
            " replied to the last turn",
            got=f"a reply at the end of {rollout}",
            expected="no reply, or an end by a limit",
            row=_row_of(step, rollout),
            specificity=4.5,
        )
    if unlike := fact.get("unlike", 0):
        first, other = fact.get("unlike_of", ("", ""))
        yield Claim(
            Verdict.SUSPECT,
            f"{with_count(unlike, 'episode answers', 'episodes answer')} the same turns of a task otherwise"
            " than another: they share a state, or the environment draws",
            got=f"other replies, or another final state, in {other} than in {first}",
            expected="episodes that begin alike, and answer alike",
            row=_row_of(step, other),
            specificity=2.0,
        )


def _compared(**fact: object) -> Step:
    return changed_step(example_step(), facts={"replies": {"checked": 8, "other": 0, "outcomes": 8} | fact})


def example() -> Step:
    """Each rollout reads the reply to the one before it."""
    return _compared(other=8, rollout="r1", reply=0, got="3 files", given_to="r0")


def outcomes_exchanged() -> Step:
    """Each rollout is graded by the final state of the next one."""
    return _compared(other_outcomes=8, outcome_of="r0")


def cut_counts_as_done() -> Step:
    """Rollouts that reach the limit of turns count as ended."""
    return _compared(unended=2, unended_of="r0")


def shared_state() -> Step:
    """A rollout finds what another one of its task has left."""
    return _compared(unlike=3, unlike_of=("r0", "r1"))


def as_given() -> Step:
    """Every reply is of its own episode."""
    return _compared()


RULE = Rule(
    code="TOL002",
    name="reply-of-another-episode",
    kind="E",
    needs=("facts.replies",),
    taints=("sft", "policy", "rewards"),
    applies=lambda step: "replies" in step.facts or step.setup.tools != (),
    judge=judge,
    example=example,
    lookalikes=(as_given,),
)
