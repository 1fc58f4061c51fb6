"""oneDNN keeps a prepared product per shape; a run meets new shapes in each step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import truing

PROGRAM = """
import psutil, torch
from truing.models.forward.onednn_linear import linear_product, use_onednn

layer = torch.nn.Linear(64, 96, bias=False)
use_onednn(layer)
torch.set_num_threads(1)
for rows in range(2, 1100):
    linear_product(torch.ones(rows, 64), layer.weight)
    if rows in (300, 1099):
        print(psutil.Process().memory_info().rss)
"""
LARGEST_GROWTH = 40 * 2**20
"""Bytes for 800 shapes, of which each takes a quarter of a megabyte and more."""


@pytest.mark.integration
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_new_shapes_do_not_take_more_and_more_memory():
    names = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    env = {name: value for name, value in os.environ.items() if name not in names}
    env["PYTHONPATH"] = str(Path(truing.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert after - before < LARGEST_GROWTH
