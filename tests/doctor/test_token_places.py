"""In which optimizer steps something is, in words."""

import pytest

from truing.doctor.token_places import optimizer_steps_text


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([1], ""),
        ([0, 0], ""),
        ([0, 1], ", in optimizer step 2 of 2"),
        ([1, 0, 1, 1], ", in optimizer steps 1, 3 and 4 of 4"),
        ([1, 1], ", in each of 2 optimizer steps"),
    ],
)
def test_the_optimizer_steps_with_something_are_named(found, text):
    assert optimizer_steps_text(found) == text
