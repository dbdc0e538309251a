"""The API reference, docs/api.md, from the definitions of our kinds."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker_pool import WorkerPool
from simyard.build import rbac
from simyard.build.crds import DEFINITIONS, Definition, custom_resource_definition
from simyard.build.schema import structural_schema

_HEAD = f"""\
<!-- Generated from operator/simyard/api by hack/generate.py (make generate). Do not edit. -->

# API reference

The kinds of `{names.API_VERSION}`. `kubectl explain` shows the same on the command line. A name that ends in `Seconds`,
`Milliseconds`, `Percent` or `Millis` gives the unit; times are UTC; numbers that are not whole stand in quotes. A field
that is not marked as required may be absent. `kubectl get {names.CATEGORY}` lists objects of all kinds.
"""

_CONDITIONS = """\
## Conditions

What was observed of an object stands in `status.conditions`: `Available` for services and pools, `Complete` and
`Failed` for ServiceActions, `Ready` for the rest. `docs/conditions.md` explains the reasons.
"""

_ACCESS = """\
## Access to actions

Four ClusterRoles come with the installation; three of them are part of Kubernetes' own `view`, `edit` and `admin`:

| ClusterRole | may | part of |
|---|---|---|
| `simyard-view` | read all objects, attributes and logs | `view`, `edit`, `admin` |
| `simyard-edit` | that, run pools, call every action | `edit`, `admin` |
| `simyard-vendor` | read, publish services | `admin` |
| `simyard-platform` | read, write CloudSites and Licences; bind it by a ClusterRoleBinding | |

Each action is a subresource of its target, so a Role can permit one and no other. kube-apiserver checks the first
segment (`workerpools/actions`), the platform the whole (`workerpools/actions/solve`): a Role needs both. The same right
guards ServiceActions: without it, none can be created (verb `create`) nor cancelled (verb `update`).

```yaml
{role}```
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _type(field: Json) -> str:
    if "enum" in field:
        return "one of " + ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        name = "integer or string"
    elif field.get("type") == "array":
        item = field["items"]
        name = "list of objects" if "properties" in item else f"list ({_type(item)})"
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


def _fields(node: Json, path: str) -> Iterator[tuple[str, Json, bool]]:
    """The fields below an object, depth first: path, schema, whether it is required. Conditions are not opened."""
    for name, field in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, field, name in node.get("required", ())
        if name == "conditions":
            continue
        if field.get("type") == "array":
            yield from _fields(field["items"], f"{here}[]")
        else:
            yield from _fields(field, here)


def _table(node: Json) -> Iterator[str]:
    yield "| field | type | what it is |"
    yield "|---|---|---|"
    for path, field, required in _fields(node, ""):
        mark = " **required**" if required else ""
        yield f"| `{path}`{mark} | {_cell(_type(field))} | {_cell(field['description'])} |"


def _rules(path: str, node: Json) -> Iterator[str]:
    below = [(path, node), *((f"{path}.{name}", field) for name, field, _ in _fields(node, ""))]
    for where, field in below:
        for holder in (field, field.get("items", {})):
            for rule in holder.get("x-kubernetes-validations", ()):
                suffix = "[]" if holder is not field else ""
                yield f"- `{where}{suffix}{rule.get('fieldPath', '')}`: {rule['message']}."


def _kind(definition: Definition) -> Iterator[str]:
    resource = definition.resource
    version = custom_resource_definition(definition)["spec"]["versions"][0]
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
        yield from _table(node)
        yield ""
        rules = list(_rules(part, node))
        if rules:
            yield "Rules:\n"
            yield from rules
            yield ""


def api_reference() -> str:
    """The text of docs/api.md."""
    lines = [_HEAD]
    for definition in DEFINITIONS:
        lines.extend(_kind(definition))
    status = structural_schema(WorkerPool)["properties"]["status"]
    lines.extend([_CONDITIONS, *_table(status["properties"]["conditions"]["items"]), ""])
    role = rbac.action_role("research", names.WORKER_POOLS, "solve")
    lines.append(_ACCESS.format(role=yaml.safe_dump(role, sort_keys=False)))
    return "\n".join(lines)
