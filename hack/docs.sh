#!/bin/sh
# docs.sh COMMAND [OPTION...]: runs mkdocs (build, serve) on docs/, in a virtual environment of its own, made on demand.
set -eu
cd "$(dirname "$0")/.."
venv=$PWD/.run/docs-venv lock=hack/docs-requirements.lock
stamp=$(sha256sum <"$lock")
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
  .venv/bin/uv --quiet venv --clear --python .venv/bin/python "$venv"
  .venv/bin/uv --quiet pip install --python "$venv/bin/python" --require-hashes -r "$lock"
  echo "$stamp" >"$venv/stamp"
fi
# The theme would announce the next project of its authors at each start; logs do not need that.
export NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true
exec "$venv/bin/mkdocs" "$@"
