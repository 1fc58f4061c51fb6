"""Numbers in sentences."""


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun: 1 rule, 2 rules; ``many`` where it takes more than an s: tokens are."""
    return f"{number} {one if number == 1 else many or one + 's'}"
