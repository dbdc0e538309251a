# One image, one command: `simyard operator`, `simyard apiserver`; and `simyard-adapter run` in worker pods.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# What comes from outside is checked by its hash; our own three distributions are built from the tree.
COPY operator/requirements.lock ./
RUN python -m venv /opt/simyard && /opt/simyard/bin/pip install --require-hashes -r requirements.lock
COPY hack/build-requirements.lock ./
RUN python -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r build-requirements.lock
COPY adapters adapters
COPY operator operator
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation -w /wheels ./adapters/service ./adapters/sites ./operator \
 && /opt/simyard/bin/pip install --no-deps --no-index /wheels/*.whl \
 && /opt/simyard/bin/python -m compileall -q /opt/simyard/lib \
 && /opt/simyard/bin/pip uninstall -qy pip
# The adapter as one directory of pure Python, for pods whose image has none (docs/sites/pod.md).
COPY hack/adapter_tree.py ./
RUN /opt/simyard/bin/python adapter_tree.py /opt/simyard-adapter

FROM ${BASE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="simyard" \
      org.opencontainers.image.description="Kubernetes operator that offers simulation software as a service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /opt/simyard /opt/simyard
COPY --from=build /opt/simyard-adapter /opt/simyard-adapter
ENV PATH=/opt/simyard/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["simyard"]
