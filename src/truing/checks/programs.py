"""Check of programs: what one of each family asks of the policy, and what becomes of its calls."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.algos.flatten import flatten
from truing.checks.result import CheckResult, Finding, check_result
from truing.checks.trial_episodes import TrialEpisode, TrialRun
from truing.rollouts.programs.finished import OTHER_CONVERSATIONS
from truing.types.status import Status
from truing.utils.format import with_count

NONE_ENDED = "calls: no program ended well"


def programs_call(trial: TrialRun) -> CheckResult:
    """Check that programs call the policy, that no call is refused, and note what their calls are."""
    run = [(episode, answers) for answers, part in _by_answers(trial) for episode in part if episode.rollouts]
    ended = [(episode, answers) for episode, answers in run if episode.rollout.status is not Status.ERROR]
    findings = [finding for episode, _ in run for finding in _refusals(episode)]
    notes = [note for episode, answers in ended for note in _notes(episode, answers)]
    return check_result(len(ended), findings, missing="" if ended else NONE_ENDED, notes=dict.fromkeys(notes))


def _by_answers(trial: TrialRun) -> Sequence[tuple[str, Sequence[TrialEpisode]]]:
    """Return the trial episodes by what answered the calls, in words."""
    return (("the demonstration", trial.demonstrated), ("empty answers", trial.empty))


def _refusals(episode: TrialEpisode) -> Iterator[Finding]:
    """Yield a finding for the first call that was refused."""
    for refusal in episode.rollout.outcome.get("refused", ())[:1]:
        yield Finding(
            episode.task.task_id,
            "a call of the program was refused",
            refusal,
            "calls that the recipe allows",
            "change the program, or the recipe",
        )


def _notes(episode: TrialEpisode, answers: str) -> Iterator[str]:
    """Yield sentences on the calls of a rollout."""
    rollout = episode.rollout
    calls: Sequence[Mapping[str, Any]] = rollout.outcome["calls"]
    samples = flatten(rollout)
    left_out = {note["call"] for note in calls if "untrained" in note}
    tokens = sum(
        turn.end - turn.start for sample in samples for turn in sample.turns if turn.call not in left_out
    )
    counts = f"{with_count(len(calls), 'call')} in {with_count(len(samples), 'sample')}"
    trained = f"{with_count(tokens, 'token')} in those that train, {episode.seconds / 2:.1f} s"
    yield f"{episode.task.family}: task {episode.task.task_id} by {answers}: {counts}, {trained}"
    for note in calls:
        if "restart" in note:
            yield f"{note['restart']}: a new sample begins"
        if "overridden" in note:
            yield f"call {note['call']} asks for {', '.join(note['overridden'])}, which the recipe overrides"
        if "written_differently" in note:
            parts = ", ".join(note["written_differently"])
            yield f"call {note['call']} has earlier answers in another form ({parts}): its sample goes on"
        if "untrained" in note:
            yield f"call {note['call']} is of a conversation that env.train leaves out"
    yield from _longer_conversation(calls)


def _longer_conversation(calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence if a conversation that is left out has more calls than each that is trained."""
    turns = Counter((note["conversation"], "untrained" in note) for note in calls)
    trained = max((count for (_, left_out), count in turns.items() if not left_out), default=0)
    others = max((count for (_, left_out), count in turns.items() if left_out), default=0)
    if others > trained:
        yield (
            f"WARNING: a conversation of {with_count(others, 'call')} is not trained, and those that are have"
            f" at most {trained}: {OTHER_CONVERSATIONS}"
        )
