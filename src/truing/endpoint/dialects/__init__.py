"""The APIs of the endpoint: a file for each reads its requests and writes its answers."""

from truing.endpoint.calls import Dialect
from truing.endpoint.dialects.chat_completions import ChatCompletions

DIALECTS: tuple[Dialect, ...] = (ChatCompletions(),)
"""All APIs that the endpoint speaks."""
