"""Kinds of problem in which a later call needs what an earlier one answered.

The request never contains what has to be looked up: only the office has addresses, ids and figures.
"""

from truing.envs.arithmetic.questions import Draws
from truing.envs.workspace.generate import PAPERS, TEXTS, TITLES, choose, free_slot, random_office
from truing.envs.workspace.problem import Problem, call, steps
from truing.envs.workspace.state import MY_ADDRESS, Event, Mail, Office


def mail(draws: Draws) -> Problem:
    """Find an address, then mail."""
    office, text, subject = random_office(draws), choose(draws, TEXTS), choose(draws, TITLES)
    person = choose(draws, list(office.contacts))
    phrasings = (
        f"E-mail {person}, subject '{subject}': {text}",
        f"Send an e-mail with the subject '{subject}' to {person}: {text}",
    )
    turns = steps(
        call("search_contacts", query=person),
        call("send_email", to=office.contacts[person], subject=subject, body=text),
        end=f"I mailed {person}.",
    )
    return Problem(choose(draws, phrasings), (person, subject, text), office, turns)


def move(draws: Draws) -> Problem:
    """Find an event, then move it."""
    office = random_office(draws)
    event_id, event = _some_event(draws, office)
    day, start = free_slot(draws, office)
    phrasings = (
        f"Move '{event.title}' from {event.day} to {day} at {start}.",
        f"The '{event.title}' of {event.day} has to be on {day} at {start} instead.",
    )
    turns = steps(
        call("list_events", day=event.day),
        call("move_event", event_id=event_id, day=day, start=start),
        end=f"It is now on {day} at {start}.",
    )
    return Problem(choose(draws, phrasings), (event.title, event.day, day, start), office, turns)


def cancel(draws: Draws) -> Problem:
    """Find an event, then cancel it."""
    office = random_office(draws)
    event_id, event = _some_event(draws, office)
    phrasings = (f"Cancel '{event.title}' on {event.day}.", f"Call off the '{event.title}' of {event.day}.")
    turns = steps(
        call("list_events", day=event.day), call("cancel_event", event_id=event_id), end="It is cancelled."
    )
    return Problem(choose(draws, phrasings), (event.title, event.day), office, turns)


def figure(draws: Draws) -> Problem:
    """Read a file, then send the number in it."""
    office = random_office(draws)
    path, person = choose(draws, list(office.files)), choose(draws, list(office.contacts))
    phrasings = (
        f"Send {person} the total in {path} on Slack, just the number.",
        f"What is the total in {path}? Tell {person} on Slack: the number, nothing else.",
    )
    turns = steps(
        call("read_file", path=path),
        call("send_slack_message", to=person, text=_total(office.files[path])),
        end=f"I sent {person} the total.",
    )
    return Problem(choose(draws, phrasings), (path, person), office, turns)


def invite(draws: Draws) -> Problem:
    """Find a mail, read which time it proposes, and put that on the calendar."""
    office, title = random_office(draws), choose(draws, TITLES)
    person, (day, start) = choose(draws, list(office.contacts)), free_slot(draws, office)
    proposal = Mail(
        sender=office.contacts[person], to=MY_ADDRESS, subject=title, body=f"Does {day} at {start} suit you?"
    )
    email_id = office.add_mail(proposal)
    phrasings = (
        f"{person} proposed a time for '{title}' by e-mail. Put it on the calendar, with {person}.",
        f"Book '{title}' with {person} at the time that {person} proposed by e-mail.",
    )
    turns = steps(
        call("read_inbox"),
        call("read_email", email_id=email_id),
        call("create_event", title=title, day=day, start=start, people=[person]),
        end=f"It is on the calendar for {day} at {start}.",
    )
    return Problem(choose(draws, phrasings), (person, title), office, turns)


def delay(draws: Draws) -> Problem:
    """Find an event, move it, and tell whoever comes, whom only the calendar names."""
    office = random_office(draws)
    event_id, event = _some_event(draws, office)
    day, start = free_slot(draws, office)
    text = f"New time: {day} {start}"
    phrasings = (
        f"Move '{event.title}' from {event.day} to {day} at {start} and tell who comes on Slack: {text}",
        f"Send '{text}' on Slack to who comes to '{event.title}' on {event.day}, and move it to that time.",
    )
    turns = steps(
        call("list_events", day=event.day),
        call("move_event", event_id=event_id, day=day, start=start),
        call("send_slack_message", to=event.people[0], text=text),
        end=f"It is moved, and {event.people[0]} knows.",
    )
    return Problem(choose(draws, phrasings), (event.title, event.day, day, start), office, turns)


def report(draws: Draws) -> Problem:
    """Find the newest of some files, read it, find an address, and mail the number."""
    office, name, newest = random_office(draws), choose(draws, PAPERS), draws.between(2, 5)
    person = choose(draws, list(office.contacts))
    for number in range(1, newest + 1):
        office.files[f"{name}-report-{number}.txt"] = f"Report {number}\ntotal: {draws.number(4)}\n"
    path = f"{name}-report-{newest}.txt"
    phrasings = (
        f"Mail {person} the total of the newest {name} report: subject '{name}', body just the number.",
        f"Find the {name} report with the highest number and e-mail its total, just the number, to {person}, "
        f"subject '{name}'.",
    )
    turns = steps(
        call("list_files"),
        call("read_file", path=path),
        call("search_contacts", query=person),
        call("send_email", to=office.contacts[person], subject=name, body=_total(office.files[path])),
        end=f"I mailed {person} the total.",
    )
    return Problem(choose(draws, phrasings), (person, name), office, turns)


def _some_event(draws: Draws, office: Office) -> tuple[str, Event]:
    """An event of the calendar, with its id."""
    return choose(draws, list(office.calendar.items()))


def _total(paper: str) -> str:
    """The figure on a page."""
    return paper.partition("total: ")[2].strip()
