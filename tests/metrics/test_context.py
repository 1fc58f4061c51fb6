"""Metrics of the context, worked by hand."""

from dataclasses import replace

import pytest
from samples import sample, scored, table_with

from truing.metrics.context import characters_lost, context_metrics, cut_share
from truing.metrics.definitions import check_metric_names
from truing.metrics.episodes import episode_metrics
from truing.types.status import Status


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def row(name, prompt, *messages, **known):
    """A sample of a prompt of so many tokens and one sampled token."""
    return sample([1] * prompt, [5], name=name, messages=messages, status=Status.DONE, **known)


FIRST = row(
    "a",
    4,
    message("system", "abc"),
    message("user", "12345", cut_chars=30),
    message("assistant", "", tool_calls=[{}]),
    message("tool", "1234567", lost_chars=8),
    message("tool", "1", lost_chars=2),
)
SECOND = row("b", 8, message("user", "123"))
LATER = row("b", 9, *SECOND.messages)  # the same rollout, after the template re-rendered its earlier turns
AGAIN = replace(LATER, sample_id="b#1")


def test_contexts_are_of_samples_and_characters_of_rollouts():
    metrics = context_metrics([FIRST, SECOND, AGAIN])
    assert metrics == pytest.approx(
        {
            "context/mean": 7.0,  # 4, 8 and 9 tokens
            "context/max": 9.0,
            "context_chars/system": 1.5,  # over two rollouts
            "context_lost/system": 0.0,
            "context_chars/user": 4.0,
            "context_lost/user": 15.0,
            "context_chars/assistant": 0.0,
            "context_lost/assistant": 0.0,
            "context_chars/tool": 4.0,
            "context_lost/tool": 5.0,
        }
    )
    check_metric_names(metrics)


def test_a_role_without_messages_is_absent():
    assert set(context_metrics([SECOND])) == {
        *("context/mean", "context/max"),
        *("context_chars/user", "context_lost/user"),
    }
    check_metric_names(context_metrics([row("a", 1, message("a/b", "x"))]))


def test_the_share_of_cut_prompts_is_of_rollouts():
    assert cut_share([FIRST, SECOND, AGAIN]) == {"context/cut_share": 0.5}
    assert cut_share([SECOND]) == {"context/cut_share": 0.0}
    check_metric_names(cut_share([SECOND]))


def test_what_answers_lost_is_not_what_prompts_lost():
    assert characters_lost(FIRST.messages, "lost_chars") == 10
    assert characters_lost(FIRST.messages, "cut_chars", "lost_chars") == 40
    assert episode_metrics(table_with(scored(FIRST), scored(SECOND)))["tools/lost_chars"] == 10.0
