# SPDX-License-Identifier: Apache-2.0
"""Write the bill of materials of an environment as a CycloneDX document.

    python hack/sbom.py FILE --version VERSION [--type container|application]

The document lists the Python distributions that this interpreter sees. For a container it also lists the packages of
Debian, which are not a part of an application.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from importlib.metadata import distributions
from pathlib import Path

Component = dict[str, object]
_FIELDS = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\t${Architecture}\\n"
_INSTALLED = "ii"


def list_python_components() -> list[Component]:
    """Return the distributions, with the licences that they state as SPDX expressions."""
    found = []
    for distribution in distributions():
        name, version = distribution.metadata["Name"].lower(), distribution.version
        component = _component(name, version, f"pkg:pypi/{name}@{version}")
        if expression := distribution.metadata["License-Expression"]:
            component["licenses"] = [{"expression": expression}]
        found.append(component)
    return found


def list_debian_components() -> list[Component]:
    """Return the packages that dpkg lists as installed; an empty list where dpkg is absent."""
    try:
        listed = subprocess.run(["dpkg-query", "-W", "-f", _FIELDS], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        return []
    found = []
    for status, name, version, architecture in (line.split("\t") for line in listed.splitlines()):
        if status.strip() == _INSTALLED:
            url = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={architecture}"
            found.append(_component(name, version, url))
    return found


def build_document(version: str, kind: str = "container") -> dict[str, object]:
    """Return the document (CycloneDX 1.6) for a container or an application."""
    components = list_python_components() + (list_debian_components() if kind == "container" else [])
    components.sort(key=lambda component: str(component["purl"]))
    subject = {"type": kind, "name": "simyard", "version": version, "bom-ref": "image" if kind == "container" else kind}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {"component": subject},
        "components": components,
    }


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--version", default="dev")
    parser.add_argument("--type", choices=("container", "application"), default="container")
    arguments = parser.parse_args()
    arguments.file.write_text(json.dumps(build_document(arguments.version, arguments.type), indent=1) + "\n")


def _component(name: str, version: str, url: str) -> Component:
    return {"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url}


if __name__ == "__main__":
    main()
