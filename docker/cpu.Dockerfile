# Truing with the CPU build of torch, from the root of the repository:
#   docker build -f docker/cpu.Dockerfile -t truing:cpu .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" truing:cpu train tiny
FROM python:3.11-slim AS build
ENV UV_TORCH_BACKEND=cpu
COPY . /src
# Users of the image cannot write bytecode next to the packages, so it is compiled here.
RUN python3 -m venv /opt/truing \
 && /opt/truing/bin/pip install --no-cache-dir uv==0.13.9 \
 && /opt/truing/bin/uv pip install --no-cache --compile-bytecode --python /opt/truing \
    --constraints /src/constraints.txt /src \
 && /opt/truing/bin/truing --version

FROM python:3.11-slim
COPY --from=build /opt/truing /opt/truing
ENV PATH=/opt/truing/bin:$PATH
# Any user may run the image: torch asks for a name, and models are cached in .cache of the working folder.
ENV USER=truing HOME=/work
WORKDIR /work
USER 1000
ENTRYPOINT ["truing"]
