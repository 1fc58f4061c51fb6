"""A chat template from elsewhere neither hangs nor renders without end."""

import pytest

from truing.chat.apply_template import apply_template
from truing.errors import DataError, ModelError
from truing.models.stop_ids import turn_end_id
from truing.models.tiny import byte_tokenizer
from truing.utils import render_template

NESTED = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
WIDE = "{{ '%7000d' % 1 }}"
HUGE = "{{ '%99999999999999d' % 1 }}"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("template", "reason"), [(NESTED, "has not ended"), (WIDE, "renders 7000"), (HUGE, "MemoryError|too")]
)
def test_a_template_without_end_is_refused(monkeypatch, template, reason):
    monkeypatch.setattr(render_template, "SECONDS", 0.3)
    monkeypatch.setattr(render_template, "LONGEST", 6999)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(DataError, match=reason):
        apply_template(tokenizer, MESSAGES, (), prompt=True)
    with pytest.raises(ModelError, match=reason):
        turn_end_id(tokenizer)


def test_a_long_conversation_is_rendered():
    """Two million characters, by a template that cuts, replaces and joins."""
    messages = [
        {"role": "user", "content": "hello <think> " * 1000},
        {"role": "assistant", "content": "x"},
    ] * 150
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% set n = namespace(all=[]) %}{% for m in messages %}"
        "{% set text = m.content.split('</think>')[-1].lstrip('\n').replace('<think>', '') | trim %}"
        "{% set n.all = n.all + [m] %}{{ '<' + m.role + '>' ~ text }}{% endfor %}"
        "{{ messages | tojson | length }}"
    )
    assert len(apply_template(tokenizer, messages, (), prompt=True)) > 1_000_000
