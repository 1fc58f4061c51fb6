"""What a task needs that its program and tests would not get."""

import re
from collections.abc import Iterator

from truing.envs.harbor.task_folder import TaskFolder

BASES = ("alpine", "bash", "busybox", "debian", "python", "scratch", "ubuntu")
"""Images with nothing in them but a system and an interpreter."""

INSTALLS = re.compile(r"\b(apt|apt-get|apk|dnf|yum)\s+(-\S+\s+)*(add|install|update|upgrade)\b")
"""A command of a test that changes the system."""


def unmet_needs(task: TaskFolder) -> Iterator[str]:
    """Yield what no runtime of Truing gives a task."""
    environment, verifier = task.environment, task.verifier
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (task.path / "environment" / name).exists():
            yield f"has services of its own: environment/{name}"
    if environment.get("os", "linux").lower() != "linux":
        yield f"is for {environment['os']}"
    for key in ("gpus", "tpu", "mcp_servers", "healthcheck", "skills_dir"):
        if environment.get(key):
            yield f"sets [environment] {key}"
    if verifier.get("environment_mode") == "separate" or "environment" in verifier:
        yield "has tests with a container of their own"
    if verifier.get("collect"):
        yield "sets [[verifier.collect]]"


def container_needs(task: TaskFolder) -> Iterator[str]:
    """Yield why a task needs a container."""
    environment, workdir = task.environment, task.workdir
    if task.image is not None:
        yield f"names the image {task.image}"
    if environment.get("allow_internet") is False or environment.get("network_mode", "public") != "public":
        yield "limits the network"
    if workdir is not None and not re.fullmatch(r"(/[\w.-]+)+", workdir):
        yield f"works in {workdir}"
    for word, rest in task.dockerfile:
        copied = word == "COPY" and rest.split() in ([".", "."], [".", "./"], [".", workdir])
        plain = word == "FROM" and re.split("[:@]", rest)[0] in BASES
        if not (copied or plain or word in ("WORKDIR", "LABEL", "CMD")):
            yield f"has a Dockerfile with {word} {rest:.60}"
    for script in sorted((task.path / "tests").glob("*.sh")):
        if found := INSTALLS.search(script.read_text(encoding="utf-8", errors="replace")):
            yield f"has a test that changes the system: {found[0]}"


def image_needs(task: TaskFolder, image: str | None) -> Iterator[str]:
    """Yield what a task lacks to run in a container; ``image`` is that of tasks that name none."""
    if task.image is None and image is None:
        yield "names no image, and env.image is not set"
    if task.workdir is None:
        yield "names no working directory in a container, by [environment] workdir or a WORKDIR"
