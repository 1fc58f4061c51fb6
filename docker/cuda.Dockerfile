# Truing with the CUDA build of torch, which brings the CUDA libraries; the host needs a driver for CUDA 13 and the
# NVIDIA Container Toolkit. From the root of the repository:
#   docker build -f docker/cuda.Dockerfile -t truing:cuda .
#   docker run --rm --gpus all --ipc=host --user "$(id -u):$(id -g)" -v "$PWD:/work" truing:cuda env
FROM python:3.11-slim AS build
COPY . /src
# Users of the image cannot write bytecode next to the packages, so it is compiled here.
RUN python3 -m venv /opt/truing \
 && /opt/truing/bin/pip install --no-cache-dir uv==0.13.9 \
 && /opt/truing/bin/uv pip install --no-cache --compile-bytecode --python /opt/truing \
    --constraints /src/constraints.txt /src \
 && /opt/truing/bin/truing --version

FROM python:3.11-slim
# Triton, which torch.compile calls, compiles a launcher with the system's C compiler.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/truing /opt/truing
ENV PATH=/opt/truing/bin:$PATH
# Any user may run the image: torch asks for a name, and models are cached in .cache of the working folder.
ENV USER=truing HOME=/work
WORKDIR /work
USER 1000
ENTRYPOINT ["truing"]
