"""Reports of checks, by environment and template."""

import pytest

from truing.chat import Chat, make_chat
from truing.checks import check
from truing.config import EpisodeConfig
from truing.rollouts.episode_context import EpisodeContext
from truing.types.sampling_params import SamplingParams


@pytest.fixture
def report(chat):
    """``report(env)`` checks it; chat, lengths, context and shaping can be set."""

    def made(env, chat=chat, max_new_tokens=128, min_new_tokens=0, context=2048, shaping=(), **limits):
        params = SamplingParams(max_new_tokens=max_new_tokens, min_new_tokens=min_new_tokens)
        return check(EpisodeContext(chat, env, params, EpisodeConfig(**limits), context), shaping)

    return made


@pytest.fixture
def chat_with(tiny):
    """``chat_with(("was", "is"), …)`` is the tiny model's chat with its template changed."""

    def made(*changes, **options) -> Chat:
        for was, now in changes:
            assert was in tiny.tokenizer.chat_template
            tiny.tokenizer.chat_template = tiny.tokenizer.chat_template.replace(was, now)
        return make_chat(tiny.tokenizer, tiny.stop_ids, **options)

    return made
