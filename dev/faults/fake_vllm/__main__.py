"""Run the fake server: ``python -m dev.faults.fake_vllm`` with arguments of ``vllm serve``."""

import sys

import uvicorn

from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.options import read_options

if __name__ == "__main__":
    options = read_options(sys.argv[1:])
    uvicorn.run(FakeServer(options).app(), host=options.host, port=options.port, log_level="warning")
