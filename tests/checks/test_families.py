"""`check` finds nothing wrong with templates that open thoughts, or end turns with the next message."""

import pytest
from families import FORMAT_OF, chat_of
from shop import Shop

ASKED = (
    "the template writes a stop",
    "the stop is trained",
    "demonstrations read as the template writes them",
    "SFT and RL show one prompt",
    "tools are shown in full",
    "tool answers are shown",
)


@pytest.mark.parametrize("family", FORMAT_OF)
def test_a_template_in_the_published_shape_passes(report, family):
    result = report(Shop(), chat_of(family))
    for name in ASKED:
        assert result[name].findings == (), (family, name)
        assert result[name].count > 0
