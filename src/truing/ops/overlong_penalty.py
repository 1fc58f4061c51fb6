"""What length takes off a reward."""


def overlong_fraction(length: int, limit: int, buffer: int) -> float:
    """How far an answer reaches into the last stretch before its limit.

    s = clip((length − (limit − buffer)) / buffer, 0, 1)  (https://arxiv.org/abs/2503.14476 eq. 13)

    Args:
        length: tokens of the answer.
        limit: tokens that it may have.
        buffer: tokens of the stretch; 0 is none.

    Returns:
        In [0, 1]: 0 before the stretch, 1 at the limit.
    """
    return min(max((length - (limit - buffer)) / buffer, 0.0), 1.0) if buffer else 0.0
