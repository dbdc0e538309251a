#!/bin/sh
# image.sh [TAG]: builds the container image (default simyard:dev) with the Docker engine. BASE names another base image
# than python:3.13-slim (it needs Python 3.11 or later with venv), VERSION the release, OPTIMISER=1 adds the
# libraries of the optimiser, PIP_CERT the CAs that pip trusts.
set -eu
cd "$(dirname "$0")/.."
image=${1:-simyard:dev}
base=${BASE:-python:3.13-slim}
build_base=$base
if [ -n "${PIP_CERT:-}" ]; then
  folder=$(mktemp -d)
  trap 'rm -r "$folder"' EXIT
  cp "$PIP_CERT" "$folder/ca.crt"
  printf 'FROM %s\nCOPY ca.crt /etc/pip-ca.crt\nENV PIP_CERT=/etc/pip-ca.crt\n' "$base" >"$folder/Dockerfile"
  build_base=simyard-build-base:local
  docker build --quiet -t "$build_base" "$folder" >/dev/null
fi
name=${image##*/}  # a registry before the name may contain a port
case $name in *:*) tag=${name##*:} ;; *) tag=latest ;; esac
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
seconds=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
docker build --quiet -t "$image" --build-arg "BASE=$base" --build-arg "BUILD_BASE=$build_base" \
  --build-arg "OPTIMISER=${OPTIMISER:-}" --build-arg "VERSION=${VERSION:-$tag}" --build-arg "REVISION=$revision" \
  --build-arg "CREATED=$(date -u -d "@$seconds" +%Y-%m-%dT%H:%M:%SZ)" . >/dev/null
docker image inspect "$image" --format '{{index .RepoTags 0}}: {{.Size}} bytes'
