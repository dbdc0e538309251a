# One image for all roles: `simyard operator`, `simyard apiserver`, `simyard frontend`, and `simyard-adapter run` in pods
# of workers. hack/image.sh builds it.
ARG BASE=python:3.13-slim
# Base of the first stage, if that needs more than the image, such as the CA of a company's proxy.
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# `strip` removes the debug information that some wheels contain. It damages the libraries that wheels bring in folders
# `*.libs`, such as numpy's OpenBLAS. A BASE other than Debian must bring `strip` itself.
RUN command -v strip >/dev/null \
 || { apt-get update -qq && apt-get install -qq -y --no-install-recommends binutils >/dev/null; }
# pip verifies the dependencies by their hashes; our own three distributions are built from the tree.
# A value of OPTIMISER adds the libraries of `simyard optimiser`, which are larger than all others together.
ARG OPTIMISER=
COPY operator/requirements.lock operator/optimiser-requirements.lock ./
RUN python3 -m venv /opt/simyard \
 && /opt/simyard/bin/pip install --no-compile --require-hashes -r "${OPTIMISER:+optimiser-}requirements.lock"
COPY hack/build-requirements.lock ./
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r build-requirements.lock
COPY adapters adapters
COPY operator operator
COPY hack/adapter_tree.py hack/sbom.py ./
ARG VERSION=dev
# The image also carries the adapter as a directory of pure Python, for pods whose image has none (docs/sites/pod.md).
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation -w /wheels ./adapters/service ./adapters/sites ./operator \
 && /opt/simyard/bin/pip install --no-compile --no-deps --no-index /wheels/*.whl \
 && /opt/simyard/bin/pip uninstall -qy pip \
 && find /opt/simyard/lib \( -type d -name tests -o -name '*.pyx' -o -name '*.px[di]' -o -name '*.[ch]' -o -name '*.pyi' \) \
      -prune -exec rm -r {} + \
 && find /opt/simyard/lib -name '*.libs' -prune -o -name '*.so' -exec strip --strip-debug {} + \
 && /opt/simyard/bin/python -m compileall -q /opt/simyard/lib \
 && /opt/simyard/bin/python sbom.py /opt/simyard/sbom.cdx.json --version "${VERSION}" \
 && /opt/simyard/bin/python adapter_tree.py /opt/simyard-adapter

FROM ${BASE}
ARG VERSION=dev
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="simyard" \
      org.opencontainers.image.description="Kubernetes operator that offers simulation software as a service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      dev.simyard.sbom="/opt/simyard/sbom.cdx.json"
COPY --from=build /opt/simyard /opt/simyard
COPY --from=build /opt/simyard-adapter /opt/simyard-adapter
# USER and HOME are set because the uid may be missing in /etc/passwd, and libraries look up their user.
ENV PATH=/opt/simyard/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 USER=simyard HOME=/tmp
USER 65532:65532
ENTRYPOINT ["simyard"]
