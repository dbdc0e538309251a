"""Write what an image is made of as a CycloneDX document: the Python distributions that this interpreter sees, and
Debian's packages.

    python hack/sbom.py FILE --version VERSION
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


def python_components() -> list[Component]:
    """The distributions, with the licences they state as SPDX expressions."""
    found = []
    for distribution in distributions():
        name, version = distribution.metadata["Name"].lower(), distribution.version
        component = _component(name, version, f"pkg:pypi/{name}@{version}")
        if expression := distribution.metadata["License-Expression"]:
            component["licenses"] = [{"expression": expression}]
        found.append(component)
    return found


def debian_components() -> list[Component]:
    """The packages that dpkg knows as installed; none where there is no dpkg."""
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


def document(version: str) -> dict[str, object]:
    """The document (CycloneDX 1.6)."""
    components = sorted([*python_components(), *debian_components()], key=lambda component: str(component["purl"]))
    image = {"type": "container", "name": "simyard", "version": version, "bom-ref": "image"}
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "metadata": {"component": image}, "components": components}


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--version", default="dev")
    arguments = parser.parse_args()
    arguments.file.write_text(json.dumps(document(arguments.version), indent=1) + "\n")


def _component(name: str, version: str, url: str) -> Component:
    return {"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url}


if __name__ == "__main__":
    main()
