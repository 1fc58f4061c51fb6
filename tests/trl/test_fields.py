"""The table of TRL's arguments is complete, and its defaults are those of the installed TRL."""

import dataclasses

import pytest
import trl

from truing.trl.arguments.configs import CONFIG_DEFAULTS
from truing.trl.arguments.fields import FIELDS


def declared(field):
    factory = field.default_factory
    value = field.default if factory is dataclasses.MISSING else factory()
    return getattr(value, "value", value)


@pytest.mark.parametrize("name", CONFIG_DEFAULTS)
def test_all_fields_have_trls_defaults(name):
    fields = dataclasses.fields(getattr(trl, name))
    assert CONFIG_DEFAULTS[name] == {field.name: declared(field) for field in fields}


def test_every_field_has_one_answer():
    names = {name for config in CONFIG_DEFAULTS.values() for name in config}
    assert FIELDS.keys() == names
    assert all(answer.text for answer in FIELDS.values())
