"""pass@k: the probability that at least one of k answers to a task passes."""

import math

from truing.errors import InvalidValueError


def pass_at_k(answers: int, passed: int, k: int) -> float:
    """Return pass@k = 1 − C(n − c, k) ÷ C(n, k), the share of k-subsets with a passing answer.

    Its mean over samples of n answers is the probability that one of k passes; 1 − (1 − c ÷ n)^k is biased
    low. Chen et al., Evaluating large language models trained on code, 2021,
    https://arxiv.org/abs/2107.03374, section 2.1.

    Args:
        answers: n, answers sampled for a task, at least k.
        passed: c, number of them that pass.
        k: number of rollouts, at least 1.

    Returns:
        A share, 0 to 1.
    """
    if not 1 <= k <= answers or not 0 <= passed <= answers:
        raise InvalidValueError(
            "pass@k has invalid counts",
            got=f"k = {k}, {passed} of {answers} passed",
            expected="1 ≤ k ≤ answers, and 0 ≤ passed ≤ answers",
        )
    return 1 - math.comb(answers - passed, k) / math.comb(answers, k)
