"""The state of a checkpoint to which a stage is rolled back; `test_guard.py` has whole runs."""

from truing.learner.checkpoint import CheckpointState
from truing.trainer.rollback import after_rollbacks


def test_coefficients_that_the_guard_sets_replace_those_of_the_checkpoint(recipe):
    made = recipe(
        kl={"coef": 0.1, "target": 0.01}, entropy={"target": 1.0}, guard={"change": ["kl.coef=0.4"]}
    )
    state = CheckpointState(
        "grpo", 4, coefficients={"kl_coef": 0.2, "entropy_coef": 0.03}, pending_facts={"a": 1}
    )
    changed = after_rollbacks(state, made, 1)
    assert changed.coefficients == {"kl_coef": 0.4, "entropy_coef": 0.03}
    assert (changed.rollbacks, changed.step, changed.pending_facts) == (1, 4, {"a": 1})
    again = after_rollbacks(
        CheckpointState("grpo", 6, coefficients={"kl_coef": 0.5, "entropy_coef": 0.0}, rollbacks=1), made, 2
    )
    assert again.coefficients["kl_coef"] == 0.5  # already changed at this checkpoint, and moved since
