"""Servers of one OpenEnv environment: one that is played by calls, one by text."""

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Guess(Action):
    """Guess the number."""

    number: int = Field(ge=0)
    why: str = ""


class Spoken(Action):
    text: str


class Seen(Observation):
    text: str = ""


class Numbers(Environment):
    """The number is twice what the start says; each guess gives 1 or -1, and the third is the last."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **other):
        self.hidden, self.guesses = seed % 1000 * 2, 0
        return Seen(text=f"half of it is {seed % 1000}")

    def step(self, action, timeout_s=None, **other):
        self.guesses += 1
        said = action.number if isinstance(action, Guess) else int(action.text)
        right = said == self.hidden
        return Seen(
            text="yes" if right else "no", reward=1.0 if right else -1.0, done=right or self.guesses == 3
        )

    @property
    def state(self):
        return State()


def number_servers() -> list[uvicorn.Server]:
    """A server for calls and one for text, not yet started."""
    apps = [create_fastapi_app(Numbers, action, Seen, max_concurrent_envs=8) for action in (Guess, Spoken)]
    return [uvicorn.Server(uvicorn.Config(app, port=0, log_level="error")) for app in apps]
