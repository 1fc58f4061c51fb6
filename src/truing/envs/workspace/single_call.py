"""Kinds of problem that one call solves. Each is a pure function of its draws."""

from truing.envs.arithmetic.questions import Draws
from truing.envs.workspace.generate import PAPERS, TEXTS, TITLES, choose, free_slot, random_office
from truing.envs.workspace.problem import Problem, call, steps


def message(draws: Draws) -> Problem:
    """Write to a person."""
    office, text = random_office(draws), choose(draws, TEXTS)
    person = choose(draws, list(office.contacts))
    prompt = choose(draws, (f"Send {person} this on Slack: {text}", f"Message {person} on Slack: {text}"))
    turns = steps(call("send_slack_message", to=person, text=text), end=f"I wrote to {person}.")
    return Problem(prompt, (person, text), office, turns)


def post(draws: Draws) -> Problem:
    """Write to a channel."""
    office, text = random_office(draws), choose(draws, TEXTS)
    channel = choose(draws, office.channels)
    prompt = choose(draws, (f"Post in {channel}: {text}", f"Tell everybody in {channel}: {text}"))
    turns = steps(call("send_slack_message", to=channel, text=text), end=f"I posted it in {channel}.")
    return Problem(prompt, (channel, text), office, turns)


def note(draws: Draws) -> Problem:
    """Write a file."""
    office, text, name = random_office(draws), choose(draws, TEXTS), choose(draws, PAPERS)
    path = f"{name}-note.txt"
    prompt = choose(draws, (f"Save this as {path}: {text}", f"Write a file {path} that says: {text}"))
    return Problem(
        prompt, (path, text), office, steps(call("write_file", path=path, text=text), end="Saved.")
    )


def book(draws: Draws) -> Problem:
    """Put an event on the calendar."""
    office = random_office(draws)
    title, person = choose(draws, TITLES), choose(draws, list(office.contacts))
    day, start = free_slot(draws, office)
    phrasings = (
        f"Put '{title}' with {person} on the calendar, {day} at {start}.",
        f"Book '{title}' for {day} {start}; {person} comes too.",
    )
    new_event = call("create_event", title=title, day=day, start=start, people=[person])
    turns = steps(new_event, end=f"It is on the calendar for {day} at {start}.")
    return Problem(choose(draws, phrasings), (title, day, start, person), office, turns)
