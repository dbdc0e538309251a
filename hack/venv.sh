#!/bin/sh
# venv.sh [--lock]: makes .venv from requirements.lock, or (--lock) writes the lock files anew.
# They are uv's, in the form of requirements files with hashes; they name packages and no index.
set -eu
cd "$(dirname "$0")/.."
UV_VERSION=0.13.8
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink

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

compile() { # OUTPUT INPUT...: pins with hashes, in agreement with what is pinned already
  output=$1
  shift
  .venv/bin/uv --quiet pip compile "$@" --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-package simyard --no-emit-package simyard-sites --no-emit-package simyard-adapter -o "$output"
}

if [ "${1:-}" = --lock ]; then
  compile requirements.lock pyproject.toml --group dev             # what a developer needs
  compile operator/requirements.lock operator/pyproject.toml -c requirements.lock # what the image holds
  echo hatchling | compile hack/build-requirements.lock - -c requirements.lock    # what builds the wheels
  compile hack/docs-requirements.lock --group docs -c requirements.lock           # what builds the documentation
fi

# A stamp of what the environment was made from: nothing to do when it is the same.
stamp=$(cat requirements.lock operator/pyproject.toml adapters/*/pyproject.toml hack/venv.sh | sha256sum)
[ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && exit 0
export VIRTUAL_ENV="$PWD/.venv"
.venv/bin/uv --quiet pip install --require-hashes -r requirements.lock
.venv/bin/uv --quiet pip install --no-deps --no-build-isolation -e adapters/service -e adapters/sites -e operator
echo "$stamp" >.venv/stamp
