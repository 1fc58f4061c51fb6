"""The configuration of a judge: the keys of ``[env.judge]``."""

from collections.abc import Iterator
from string import Template
from typing import Annotated, Literal

from pydantic import Field

from truing.config import FrozenModel, PositiveFloat, PositiveInt

PROMPT = """\
You judge an answer to a question.

Question:
$question

The right answer:
$reference

The answer to judge:
$response

How right is the answer to judge? It is right if it means the same as the right answer and adds nothing that \
is false. End with a line that holds only "Score: N", with N from 0 (wrong) to 10 (right)."""


class JudgeConfig(FrozenModel):
    """The judge's model, its prompt, and what happens without a score."""

    model: str
    """The model's name at the endpoint; without `base_url`, a local model, as in `[model] name`."""
    base_url: Annotated[str, Field(pattern="^https?://")] | None = None
    """An OpenAI-compatible endpoint, such as "http://localhost:8000/v1"."""
    api_key_env: str | None = None
    """The environment variable with the endpoint's key; without it no key is sent."""
    prompt: str = PROMPT
    """The judge's prompt; $question, $reference and $response are filled in."""
    max_tokens: PositiveInt = 512
    """Longest reply of the judge, tokens."""
    timeout: PositiveFloat = 60.0
    """Seconds that a reply of the endpoint may take, from the connection to its last byte."""
    retries: Annotated[int, Field(ge=0)] = 3
    """Retries after a failure of the endpoint, or a reply without a score."""
    backoff: PositiveFloat = 1.0
    """Seconds before the first retry; each later retry waits twice as long."""
    cache: str | None = None
    """The SQLite file of replies; `judge.sqlite` in Truing's cache folder if not given."""
    on_unavailable: Literal["error", "skip"] = "error"
    """Without a score: an error ends the run, or the group is skipped and recorded as such."""

    def contradictions(self) -> Iterator[str]:
        """Refuse a prompt without the response, and a key without an endpoint."""
        template, known = Template(self.prompt), {"question", "reference", "response"}
        names = set(template.get_identifiers())
        if not template.is_valid() or "response" not in names or names - known:
            yield "prompt needs $response, may hold $question and $reference, and writes $ as $$"
        if self.api_key_env and not self.base_url:
            yield "api_key_env needs an endpoint: set base_url"
