"""A Ray instance that tests share, and servers that answer as vLLM does on its nodes."""

import os
import sys
import time
from contextlib import contextmanager

from truing.utils.process_state import signal_handlers_kept

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@contextmanager
def local_ray(cpus):
    """Return the address of a Ray instance on this machine."""
    import ray

    with signal_handlers_kept():
        context = ray.init(
            "local",
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            logging_level="ERROR",
        )
        try:
            yield context.address_info["gcs_address"]
        finally:
            ray.shutdown()


def fake_vllm_python(folder):
    """Write an interpreter whose vLLM is the fake server; return its path."""
    package = folder / "packages" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for each in (package, package.parent, package.parent.parent):
        (each / "__init__.py").write_text("")
    (package / "api_server.py").write_text(
        "import runpy\nrunpy.run_module('dev.faults.fake_vllm', run_name='__main__')\n"
    )
    script = folder / "python"
    packages = package.parents[2]
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def is_empty():
    """Whether no actor and no placement group is left on the cluster, soon."""
    import ray
    from ray.util import placement_group_table

    end = time.monotonic() + 20
    while time.monotonic() < end:
        groups = {each["state"] for each in placement_group_table().values()}
        free = ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"]
        if free and groups <= {"REMOVED"}:
            return True
        time.sleep(0.1)
    return False
