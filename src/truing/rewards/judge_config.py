"""How a judge is declared: the keys of ``[env.judge]``."""

from string import Template
from typing import Annotated, Literal

from pydantic import Field, model_validator

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
    """Which model judges, how it is asked, and what is done where it gives no score."""

    model: str
    """The model's name at the endpoint; without `base_url`, a model as `[model] name` takes it, run here."""
    base_url: Annotated[str, Field(pattern="^https?://")] | None = None
    """An OpenAI-compatible endpoint, such as "http://localhost:8000/v1"."""
    api_key_env: str | None = None
    """The environment variable that holds the endpoint's key; without it no key is sent."""
    prompt: str = PROMPT
    """What the judge reads; $question, $reference and $response are filled in."""
    max_tokens: PositiveInt = 512
    """The judge's reply is at most so long."""
    timeout: PositiveFloat = 60.0
    """Seconds to wait for the endpoint to connect or to send more."""
    retries: Annotated[int, Field(ge=0)] = 3
    """How often an endpoint is asked again that fails, or replies without a score."""
    backoff: PositiveFloat = 1.0
    """Seconds before the first retry; each later one waits twice as long."""
    cache: str | None = None
    """The SQLite file of replies; `judge.sqlite` in Truing's cache folder where not given."""
    on_unavailable: Literal["error", "skip"] = "error"
    """No score is an error that ends the run, or the group is skipped and recorded as such."""

    @model_validator(mode="after")
    def _whole(self) -> "JudgeConfig":
        """Refuse a prompt that does not show the response, and a key without an endpoint."""
        template, known = Template(self.prompt), {"question", "reference", "response"}
        names = set(template.get_identifiers())
        if not template.is_valid() or "response" not in names or names - known:
            raise ValueError("prompt needs $response, may hold $question and $reference, and writes $ as $$")
        if self.api_key_env and not self.base_url:
            raise ValueError("api_key_env is for an endpoint: give base_url, too")
        return self
