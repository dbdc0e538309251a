#!/bin/sh
# venv.sh [--lock]: makes .venv from requirements.lock; --lock writes the lock files first.
# uv compiles the lock files: requirements files with hashes, which name packages and no index.
set -eu
cd "$(dirname "$0")/.."
UV_VERSION=0.13.8
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink UV_COMPILE_BYTECODE=1

die() { echo "venv: $*" >&2; exit 1; }

if ! [ -x .venv/bin/uv ] || [ "$(.venv/bin/uv --version | cut -d' ' -f2)" != "$UV_VERSION" ]; then
  python=$(command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3) ||
    die "Python 3.11 or later is needed: apt-get install python3 python3-venv"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$python is older than Python 3.11"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    [ "$(id -u)" = 0 ] || die "$python has no venv module: apt-get install python3-venv"
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-venv >/dev/null ||
      { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-venv; } >/dev/null ||
      die "could not install python3-venv"
  fi
  "$python" -m venv --clear .venv
  .venv/bin/pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
fi

compile() { # OUTPUT INPUT...: pins with hashes, and keeps present pins where possible
  output=$1
  shift
  .venv/bin/uv --quiet pip compile "$@" --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-package simyard --no-emit-package simyard-sites --no-emit-package simyard-adapter \
    --no-emit-package simyard-client --no-emit-package simyard-simulators -o "$output"
}

if [ "${1:-}" = --lock ]; then
  compile requirements.lock pyproject.toml --group dev             # for developers
  compile operator/requirements.lock operator/pyproject.toml -c requirements.lock # for the image
  compile operator/optimiser-requirements.lock operator/pyproject.toml --extra optimise -c requirements.lock
  echo hatchling | compile hack/build-requirements.lock - -c requirements.lock    # for building wheels
  compile hack/docs-requirements.lock --group docs -c requirements.lock           # for the documentation
fi

# The stamp is a hash of the inputs of the environment: if it is unchanged, the environment is up to date.
stamp=$(cat requirements.lock operator/pyproject.toml adapters/*/pyproject.toml hack/venv.sh | sha256sum)
[ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && exit 0
export VIRTUAL_ENV="$PWD/.venv"
.venv/bin/uv --quiet pip install --require-hashes -r requirements.lock
.venv/bin/uv --quiet pip install --no-deps --no-build-isolation -e adapters/service -e adapters/sites \
  -e adapters/client -e adapters/simulators -e operator
echo "$stamp" >.venv/stamp
