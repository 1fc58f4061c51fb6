"""A chat template from elsewhere neither hangs nor fills the memory."""

import tracemalloc

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from truing.chat.apply_template import apply_template
from truing.errors import DataError, ModelError
from truing.models.stop_ids import turn_end_id
from truing.models.tiny import byte_tokenizer
from truing.utils import bounded_templates, render_template

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


FILLING = {
    "a width": "{{ '%1000000000d' % 1 }}",
    "a width that is an argument": "{{ '%*d' % (1000000000, 1) }}",
    "a format": "{{ '{:1000000000d}'.format(1) }}",
    "a format of a format": "{{ '{:{}d}'.format(1, 1000000000) }}",
    "a filter's format": "{{ '%1000000000d' | format(1) }}",
    "a product": "{{ 'x' * 1000000000 }}",
    "a product of a list": "{% set x = [1] * 1000000000 %}",
    "a power": "{% set x = 10 ** 1000000000 %}",
    "a method": "{{ 'x'.ljust(1000000000) }}",
    "a filter": "{{ 'x' | center(1000000000) }}",
    "tabs": "{{ '\t'.expandtabs(1000000000) }}",
    "indented lines": "{{ ('x\n' * 100000) | indent(100000) }}",
    "replacements": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "a filter's replacements": "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
    "joined parts": "{{ (['x' * 100000] * 100000) | join }}",
    "a method's parts": "{{ ('x' * 100000).join(['y'] * 100000) }}",
    "a list as text": "{% set x = ['x' * 100000] * 100000 %}{{ x }}",
    "a list as JSON": "{% set x = ['x' * 100000] * 100000 %}{{ x | tojson }}",
    "doubling": "{% set n = namespace(x='x') %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling by +": (
        "{% set n = namespace(x='x') %}{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}"
    ),
    "doubling lists": (
        "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}"
    ),
    "doubling nests": (
        "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
        "{{ n.x }}"
    ),
    "doubling blocks": (
        "{% set n = namespace(x='x') %}{% for i in range(40) %}"
        "{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}{% endfor %}"
    ),
    "many texts": (
        "{% set n = namespace(x=[]) %}{% for i in range(99999) %}"
        "{% set n.x = n.x + ['x' * 60000] %}{% endfor %}"
    ),
    "many slices": (
        "{% set x = 'x' * 60000000 %}{% set n = namespace(x=[]) %}{% for i in range(99999) %}"
        "{% set n.x = n.x + [x[1:]] %}{% endfor %}"
    ),
    "many outputs": "{% for i in range(99999) %}{{ 'x' * 60000 }}{% endfor %}",
    "a macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{{ m(m(m(m(m(m('x' * 10000000)))))) }}",
    "characters": "{% set x = ('ü' * 9999999) | list %}",
    "pieces": "{% set x = ('x ' * 9999999).split() %}",
    "lines": "{% set x = ('x\n' * 9999999).splitlines() %}",
    "a mapped filter": "{{ range(99999) | map('center', 60000) | list | length }}",
}


@pytest.mark.parametrize("name", FILLING)
def test_a_template_does_not_fill_the_memory(name):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = FILLING[name]
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="too large texts"):
            apply_template(tokenizer, MESSAGES, (), prompt=True)
        assert tracemalloc.get_traced_memory()[1] < 3 * bounded_templates.BUDGET
    finally:
        tracemalloc.stop()


ORDINARY = """{% macro say(role, text) %}<{{ role }}>{{ text | trim }}</{{ role }}>{% endmacro %}
{%- for message in messages[::-1] %}{{ say(message.role, message['content'] ~ loop.index) + '!' }}{% endfor %}
{{- 'a,b'.split(',')[-1] * 2 }} {{ '%05.1f|%s' % (1.5, 'x') }} {{ '{}-{:>3}'.format(1, 2) }}
{{ 2 ** 3 * 7 % 5 }} {{ messages | selectattr('role') | list | length }}
{{ {'a': [1, {'b': 'ü'}]} | tojson(indent=2) }} {{ ['a', 'b'] | join(', ') }} {{ 'a\nb' | indent(2) }}
{{ [1, 2, 3] | map('string') | list }} {{ 'aXb'.replace('X', '--') | upper }}
{% set text %}{{ messages[0].content[:3] }}{% endset %}{{ text }} {{ [1] + [2] }} {{ 'x' | center(5) }}|"""


def test_a_template_renders_as_without_bounds():
    tokenizer = byte_tokenizer()
    environment = bounded_templates._plain_compile.func.__wrapped__("").environment
    assert type(environment) is ImmutableSandboxedEnvironment
    expected = environment.from_string(ORDINARY).render(messages=MESSAGES * 3)
    tokenizer.chat_template = ORDINARY
    assert apply_template(tokenizer, MESSAGES * 3, (), prompt=True) == expected


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
