"""The APIs of the endpoint: a file for each reads its requests and writes its answers."""

from truing.endpoint.calls import Dialect
from truing.endpoint.dialects.anthropic_messages import AnthropicMessages
from truing.endpoint.dialects.chat_completions import ChatCompletions
from truing.endpoint.dialects.responses import Responses

DIALECTS: tuple[Dialect, ...] = (ChatCompletions(), Responses(), AnthropicMessages())
"""All APIs that the endpoint speaks."""
