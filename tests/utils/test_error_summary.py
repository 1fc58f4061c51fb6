"""An error in a line."""

from truing.errors import ProgramError
from truing.utils.format import summary_of_error


def test_the_line_that_says_why_is_in_it():
    got = "the end of its stderr:\nTraceback\nValueError: bug"
    error = str(ProgramError("it crashed", got=got, expected="none", remedy="mend it"))
    assert summary_of_error(error) == "it crashed … ValueError: bug … remedy: mend it"
    assert summary_of_error("one line\n") == "one line"
    assert summary_of_error("Traceback\n  File\nOSError: down") == "Traceback … OSError: down"
