"""How often at least one of k answers to a task passes."""

import math

from truing.errors import InvalidValueError


def pass_at_k(answers: int, passed: int, k: int) -> float:
    """pass@k = 1 − C(n − c, k) ÷ C(n, k): the share of choices of k answers in which at least one passes.

    Its mean over draws of the n answers is the chance that one of k passes (1 − (1 − c ÷ n)^k is not: it is
    too low). Chen et al., Evaluating large language models trained on code, 2021,
    https://arxiv.org/abs/2107.03374, section 2.1.

    Args:
        answers: n, that were drawn for a task, k at least.
        passed: c, of these.
        k: answers that one may try, 1 at least.

    Returns:
        A share, 0 to 1.
    """
    if not 1 <= k <= answers or not 0 <= passed <= answers:
        raise InvalidValueError(
            "pass@k is of k among the answers that were drawn",
            got=f"k = {k}, {passed} of {answers} passed",
            expected="1 ≤ k ≤ answers, and 0 ≤ passed ≤ answers",
        )
    return 1 - math.comb(answers - passed, k) / math.comb(answers, k)
