"""An office with people and papers in it, decided by draws. All names and texts are made up."""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from truing.envs.arithmetic.questions import Draws
from truing.envs.workspace.state import DAYS, MY_ADDRESS, Event, Mail, Office, Post

Item = TypeVar("Item")

FIRST = (
    "Anna",
    "Bruno",
    "Clara",
    "Derek",
    "Elena",
    "Farid",
    "Greta",
    "Hugo",
    "Irene",
    "Jonas",
    "Keiko",
    "Lars",
)
LAST = (
    "Abel",
    "Brandt",
    "Costa",
    "Dahl",
    "Engel",
    "Fabre",
    "Gruber",
    "Holt",
    "Ivers",
    "Jansen",
    "Keller",
    "Lund",
)
HOSTS = ("mail.example", "office.example", "post.example")
CHANNELS = ("#general", "#design", "#sales", "#support", "#travel", "#kitchen", "#hiring", "#release")
TITLES = (
    "budget review",
    "design meeting",
    "fire drill",
    "interview",
    "lunch talk",
    "planning",
    "release check",
    "sales call",
    "supplier visit",
    "team breakfast",
    "training",
    "yearly audit",
)
TIMES = tuple(f"{hour:02d}:{minute}" for hour in range(9, 17) for minute in ("00", "30"))
TEXTS = (
    "The printer works again.",
    "The contract is signed.",
    "The train is late; start without me.",
    "Please close the windows tonight.",
    "The new keys are at the front desk.",
    "The server will be down at noon.",
    "Thank you for the quick answer.",
    "The samples arrived this morning.",
    "Lunch is on me today.",
    "The draft needs one more page.",
    "The customer said yes.",
    "Bring the blue folder, please.",
    "The door code has changed.",
    "The slides are ready.",
    "The invoice was paid yesterday.",
    "I am out of the office on Friday.",
)
PAPERS = ("budget", "travel", "rent", "catering", "parking", "cleaning", "printing", "insurance")


def choose(draws: Draws, items: Sequence[Item]) -> Item:
    """One of the items."""
    return items[draws.between(0, len(items) - 1)]


def choose_several(draws: Draws, items: Sequence[Item], count: int) -> list[Item]:
    """``count`` different items, in the order drawn."""
    return [items[i] for i in draws.distinct(count, partial(draws.between, 0, len(items) - 1))]


def random_office(draws: Draws) -> Office:
    """An office with six people, four channels, eight events, four papers, and something to read."""
    people = [
        f"{first} {last}"
        for first, last in zip(choose_several(draws, FIRST, 6), choose_several(draws, LAST, 6), strict=True)
    ]
    office = Office(
        contacts={person: _address(draws, person) for person in people},
        channels=choose_several(draws, CHANNELS, 4),
        files={f"{name}.txt": _paper(draws, name) for name in choose_several(draws, PAPERS, 4)},
    )
    for text in choose_several(draws, TEXTS, 6):
        office.slack.append(
            Post(place=choose(draws, office.channels), sender=choose(draws, people), text=text)
        )
    for person, text in zip(people[:3], choose_several(draws, TEXTS, 3), strict=True):
        sender = office.contacts[person]
        office.add_mail(Mail(sender=sender, to=MY_ADDRESS, subject=f"from {person.split()[0]}", body=text))
    for title in choose_several(draws, TITLES, 8):
        day, start = free_slot(draws, office)
        office.add_event(Event(title=title, day=day, start=start, people=(choose(draws, people),)))
    return office


def free_slot(draws: Draws, office: Office) -> tuple[str, str]:
    """Return a weekday and a start at which the calendar is still free."""
    taken = {(event.day, event.start) for event in office.calendar.values()}
    return choose(draws, [(day, start) for day in DAYS for start in TIMES if (day, start) not in taken])


def _address(draws: Draws, person: str) -> str:
    """Return an address that does not follow from the name, so that it has to be looked up."""
    first, last = person.lower().split()
    return f"{first}.{last}{draws.number(2)}@{choose(draws, HOSTS)}"


def _paper(draws: Draws, name: str) -> str:
    """A page with one figure on it."""
    return f"Costs of {name}\nstatus: draft\ntotal: {draws.number(4)}\n"
