"""Names and numbers in Python's notation: ``{'loss': 0.5, 'kl': '1e-05', 'x': np.float64(nan)}``."""

import re

NUMBER = r"-?(?:\d[\d_]*(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+|nan|inf(?:inity)?)"
VALUE = rf"(?:(?:np\.)?\w*\(|tensor\(|'|\")?\s*({NUMBER})"
"""A number, also in quotes (transformers 5 prints texts) or in the type of numpy or torch."""

PAIR = re.compile(rf"""['"]([^'"]+)['"]:\s*{VALUE}(?![\w.])""", re.IGNORECASE)


def pairs(text: str) -> dict[str, float]:
    """Return names and numbers of a printed dict; other values are left out."""
    return {name: float(value) for name, value in PAIR.findall(text)}
