# SPDX-License-Identifier: Apache-2.0
"""Generator of the API reference docs/api.md from the definitions of the kinds."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker_pool import WorkerPool
from simyard.manifests import rbac
from simyard.manifests.crds import DEFINITIONS, Definition, build_crd
from simyard.manifests.schema import build_schema

_HEAD = f"""\
<!-- Generated from operator/simyard/api by hack/generate.py (make generate). Do not edit. -->

# API reference

This page describes the kinds of `{names.API_VERSION}`. `kubectl explain` shows the same text on the command line.

- The ending of a field's name is its unit: `Seconds`, `Milliseconds`, `Percent`, `Millis` (thousandths).
- Times are in UTC. Numbers that are not whole are written in quotes.
- A field that is not marked as **required** may be absent.
- `kubectl get {names.CATEGORY}` lists the objects of all kinds.
"""

_CONDITIONS = """\
## Conditions

The field `status.conditions` holds the observations of an object's state. Services and pools have the condition
`Available`, ServiceActions have `Complete` and `Failed`, sites and workers have `Ready`. `docs/conditions.md` explains
all conditions and reasons.
"""

_ACCESS = """\
## Access to actions

The installation contains four ClusterRoles; three of them are part of Kubernetes' own `view`, `edit` and `admin`:

| ClusterRole | permits to | part of |
|---|---|---|
| `simyard-view` | read all objects, attributes and logs | `view`, `edit`, `admin` |
| `simyard-edit` | do the same, run pools, call every action | `edit`, `admin` |
| `simyard-vendor` | read all objects, publish services | `admin` |
| `simyard-platform` | read all objects, write CloudSites and Licences; bind it by a ClusterRoleBinding | |

Each action is a subresource of its target, so a Role can permit one action and no other. kube-apiserver checks the
first segment (`workerpools/actions`), and the platform checks the whole (`workerpools/actions/solve`). A Role therefore
needs both. The same right guards ServiceActions: the verb `create` to create one, the verb `update` to cancel one.

```yaml
{role}```
"""


def _format_cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _format_type(field: Json) -> str:
    if "enum" in field:
        return "one of " + ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        name = "integer or string"
    elif field.get("type") == "array":
        item = field["items"]
        name = "list of objects" if "properties" in item else f"list ({_format_type(item)})"
    elif field.get("x-kubernetes-preserve-unknown-fields"):
        name = "values by name" if field.get("type") == "object" else "any value"
    elif field.get("format") == "date-time":
        name = "time"
    else:
        name = field["type"]
    bounds = []
    if "minimum" in field and "maximum" in field:
        bounds.append(f"{field['minimum']} to {field['maximum']}")
    elif "minimum" in field:
        bounds.append(f"at least {field['minimum']}")
    if "maxLength" in field:
        bounds.append(f"at most {field['maxLength']} characters")
    if "maxItems" in field:
        bounds.append(f"at most {field['maxItems']} items")
    if "pattern" in field:
        bounds.append(f"`{field['pattern']}`")
    return ", ".join([name, *bounds])


def _list_fields(node: Json, path: str) -> Iterator[tuple[str, Json, bool]]:
    """Yield the path and schema of each field below an object, and whether it is required, depth first.

    The function skips the fields of conditions.
    """
    for name, field in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, field, name in node.get("required", ())
        if name == "conditions":
            continue
        if field.get("type") == "array":
            yield from _list_fields(field["items"], f"{here}[]")
        else:
            yield from _list_fields(field, here)


def _format_table(node: Json) -> Iterator[str]:
    yield "| field | type | description |"
    yield "|---|---|---|"
    for path, field, required in _list_fields(node, ""):
        mark = " **required**" if required else ""
        yield f"| `{path}`{mark} | {_format_cell(_format_type(field))} | {_format_cell(field['description'])} |"


def _format_rules(path: str, node: Json) -> Iterator[str]:
    below = [(path, node), *((f"{path}.{name}", field) for name, field, _ in _list_fields(node, ""))]
    for where, field in below:
        for holder in (field, field.get("items", {})):
            for rule in holder.get("x-kubernetes-validations", ()):
                suffix = "[]" if holder is not field else ""
                yield f"- `{where}{suffix}{rule.get('fieldPath', '')}`: {rule['message']}."


def _format_kind(definition: Definition) -> Iterator[str]:
    resource = definition.resource
    version = build_crd(definition)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {resource.kind}\n"
    yield f"{schema['description']}\n"
    scope = "in a namespace" if resource.namespaced else "of the whole cluster"
    fields = "".join(f", `{path.removeprefix('.')}`" for path in definition.fields)
    limit = f" The name is a DNS label of at most {resource.name_max} characters." if resource.name_max else ""
    scale = " It has the scale subresource." if definition.scalable else ""
    selectors = f" Field selectors: `metadata.name`{fields}." if fields else ""
    yield f"`kubectl get {resource.plural}` (`{definition.short_name}`), {scope}.{limit}{scale}{selectors}\n"
    for part in ("spec", "status"):
        if (node := schema["properties"].get(part)) is None:
            continue
        yield f"### {resource.kind} {part}\n"
        yield f"{node['description']}\n"
        yield from _format_table(node)
        yield ""
        rules = list(_format_rules(part, node))
        if rules:
            yield "Rules:\n"
            yield from rules
            yield ""


def build_api_reference() -> str:
    """Return the text of docs/api.md."""
    lines = [_HEAD]
    for definition in DEFINITIONS:
        lines.extend(_format_kind(definition))
    status = build_schema(WorkerPool)["properties"]["status"]
    lines.extend([_CONDITIONS, *_format_table(status["properties"]["conditions"]["items"]), ""])
    role = rbac.build_action_role("research", names.WORKER_POOLS, "solve")
    lines.append(_ACCESS.format(role=yaml.safe_dump(role, sort_keys=False)))
    return "\n".join(lines)
