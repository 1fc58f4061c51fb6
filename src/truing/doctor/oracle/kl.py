"""Estimates of the KL to a reference at sampled tokens: http://joschu.net/blog/kl-approx.html."""

import torch
from torch import Tensor


def kl_estimates(x_n: Tensor) -> dict[str, Tensor]:
    """Return k1, k2 and k3 of each token, [n] nats (k2: nats²), with x = log π − log π_ref."""
    return {"k1": x_n, "k2": x_n.square() / 2, "k3": torch.expm1(-x_n) + x_n}


def difference_sizes(apart_n: Tensor) -> tuple[float, float, float]:
    """Return the median and largest size of differences [n] of log-probabilities, and their k3: nats."""
    size_n = apart_n.abs()
    return float(size_n.median()), float(size_n.max()), float(kl_estimates(-apart_n)["k3"].mean())
