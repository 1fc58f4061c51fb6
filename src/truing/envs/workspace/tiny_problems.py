"""Kinds for `tiny`, a model of 136 thousand parameters that reads bytes: names and words of three letters.

No two names and no two words begin alike, so that one letter decides which it is.
"""

from truing.envs.arithmetic.questions import Draws
from truing.envs.workspace.generate import choose, choose_several
from truing.envs.workspace.problem import Problem, call, steps
from truing.envs.workspace.state import Office

# fmt: off
NAMES = (
    "Ann", "Bob", "Cid", "Dee", "Eva", "Flo", "Gus", "Hal", "Ida", "Jon", "Kim", "Lea", "Max",
    "Ned", "Ole", "Pam", "Ray", "Sue", "Tom", "Uma", "Vic", "Wes", "Xia", "Yan", "Zoe",
)
WORDS = (
    "art", "bus", "cup", "dog", "egg", "fan", "gap", "hen", "ink", "jam", "key", "log",
    "map", "net", "oil", "pen", "rug", "sun", "toy", "urn", "van", "web", "yak", "zip",
)
# fmt: on
END = "Done."


def message(draws: Draws) -> Problem:
    """Write a word to a person."""
    name, word = choose(draws, NAMES), choose(draws, WORDS)
    turns = steps(call("send_slack_message", to=name, text=word), end=END)
    return Problem(f"Tell {name}: {word}", (name, word), _small_office(), turns)


def note(draws: Draws) -> Problem:
    """Write a word to a file."""
    path, word = choose(draws, NAMES), choose(draws, WORDS)
    turns = steps(call("write_file", path=path, text=word), end=END)
    return Problem(f"Save {path}: {word}", (path, word), _small_office(), turns)


def file(draws: Draws) -> Problem:
    """Read the one word of a file, then write it to a person."""
    name, office = choose(draws, NAMES), _small_office()
    path, word = choose_several(draws, WORDS, 2)
    office.files[path] = word
    turns = steps(call("read_file", path=path), call("send_slack_message", to=name, text=word), end=END)
    return Problem(f"Tell {name} what {path} says", (name, path), office, turns)


def _small_office() -> Office:
    """An office of people without addresses."""
    return Office(contacts={name: f"{name.lower()}@office.example" for name in NAMES})
