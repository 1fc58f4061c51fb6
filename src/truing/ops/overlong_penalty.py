"""The length penalty of a reward."""


def overlong_fraction(length: int, limit: int, buffer: int) -> float:
    """Return how far an answer extends into the buffer before its limit.

    s = clip((length − (limit − buffer)) / buffer, 0, 1)  (https://arxiv.org/abs/2503.14476 eq. 13)

    Args:
        length: tokens of the answer.
        limit: largest length, tokens.
        buffer: length of the buffer, tokens; 0 is none.

    Returns:
        In [0, 1]: 0 before the buffer, 1 at the limit.
    """
    return min(max((length - (limit - buffer)) / buffer, 0.0), 1.0) if buffer else 0.0
