"""The rows of TRL's steps that a plain forward checks."""

from dataclasses import replace

from truing.doctor.example_steps import example_step
from truing.integrations.trl.forward_check import MAX_ROWS, rows_to_check


def test_the_number_of_the_step_draws_the_rows_and_draws_them_again():
    steps = [replace(example_step(), step=number) for number in range(12)]
    chosen = [[index for index, _ in rows_to_check(step)] for step in steps]
    assert all(len(each) == MAX_ROWS for each in chosen)
    assert {index for each in chosen for index in each} == set(range(8))
    assert chosen[5] == [index for index, _ in rows_to_check(steps[5])]
