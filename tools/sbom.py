"""Write the bill of materials of pytrace in CycloneDX, for `make sbom`: `python tools/sbom.py FILE [EXTRA...]`, or of all extras.

It has pytrace, all that pip installs with it in the versions of uv.lock with the hashes of their files, what is compiled in, and the
catalog's models; the same sources give the same bytes. It needs cyclonedx-python-lib, of the group `release`.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import licences
import locked

import lock

Json = dict[str, Any]

# What is inside pytrace's own files.
INSIDE = [
    {"name": "pybind11", "license": "BSD-3-Clause", "of": "native"},
    {"name": "cytoscape", "license": "MIT", "file": "pytrace/serve/explorer/vendor/cytoscape.min.js"},
]


def main(arguments: Sequence[str]) -> int:
    """Write the file once it is valid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    path, *extras = arguments
    described = bill(extras or list(locked.project()["project"]["optional-dependencies"]))
    text = json.dumps(described, indent=2) + "\n"
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        print(f"the bill of materials is not valid: {error}", file=sys.stderr)
        return 1
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    print(f"{path}: {len(described['components'])} components")
    return 0


def bill(extras: Sequence[str]) -> Json:
    """Return the bill of pytrace with some extras."""
    packages = locked.read()
    known = json.loads(licences.KNOWN.read_text(encoding="utf-8"))
    project = locked.project()["project"]
    ours = f"pkg:pypi/{project['name']}@{locked.version()}"
    found: dict[str, tuple[locked.Package, list[str]]] = {}
    for extra in ["", *extras]:
        for package in locked.needed(packages, extras=[extra] if extra else [], base=not extra):
            found.setdefault(reference(package), (package, []))[1].append(extra)
    components = [component(package, brought, known) for package, brought in found.values()]
    dependencies = [{"ref": ours, "dependsOn": sorted(found)}]
    for each, (package, brought) in found.items():
        named = [
            item
            for item in package.get("dependencies", [])
            if any(locked.holds(item.get("marker", ""), [extra], []) for extra in brought)
        ]
        needed = {reference(locked.of(packages, item)) for item in named}
        dependencies.append({"ref": each, "dependsOn": sorted(needed & found.keys())})
    serial = uuid.uuid5(uuid.NAMESPACE_URL, ours + json.dumps(components))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": ours,
                "name": project["name"],
                "version": locked.version(),
                "description": project["description"],
                "licenses": licence(project["license"]),
                "purl": ours,
                "components": [inside(each, packages) for each in INSIDE],
            }
        },
        "components": components + models(),
        "dependencies": dependencies,
    }


def reference(package: locked.Package) -> str:
    """Return the package URL of a package."""
    return f"pkg:pypi/{package['name']}@{package['version']}"


def component(package: locked.Package, extras: Sequence[str], known: licences.Known) -> Json:
    """Describe a package: required, or brought by extras; the file that pip takes has one of the hashes."""
    name, version = package["name"], package["version"]
    return {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "scope": "required" if "" in extras else "optional",
        "licenses": licence(known[name][version]),
        "purl": reference(package),
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/",
                "hashes": [sha256(each) for each in lock.usable_hashes([package])[name, version]],
            }
        ],
        "properties": [{"name": "pytrace:extra", "value": extra} for extra in extras if extra],
    }


def inside(part: dict[str, str], packages: list[locked.Package]) -> Json:
    """Describe what is compiled in or copied."""
    described: Json = {"type": "library", "bom-ref": f"inside:{part['name']}", "name": part["name"]}
    if "of" in part:
        (package,) = (each for each in packages if each["name"] == part["name"])
        described |= {"version": package["version"], "purl": reference(package)}
    else:
        source = (locked.ROOT / part["file"]).read_text(encoding="utf-8")
        version = re.search(r'version\s*[=:]\s*"(\d+\.\d+\.\d+)"', source)
        described |= {"version": version[1]} if version else {}
    return {**described, "licenses": licence(part["license"])}


def models() -> list[Json]:
    """Describe the models that can be pulled by name; those whose hashes the catalog has not are held to what is first pulled."""
    described = []
    for model in json.loads(licences.CATALOG.read_text(encoding="utf-8"))["models"]:
        name = f"model:{model['name']}"
        files = [
            {
                "type": "file",
                "bom-ref": f"{name}/{file['path']}",
                "name": file["path"],
                **({"hashes": [sha256(file["sha256"])]} if "sha256" in file else {}),
                "properties": [{"name": "pytrace:source", "value": source["uri"]} for source in file["sources"]],
            }
            for file in model["files"]
        ]
        described.append(
            {
                "type": "machine-learning-model",
                "bom-ref": name,
                "name": model["name"],
                "description": model["description"],
                "scope": "optional",
                "licenses": licence(model["license"]),
                "components": files,
            }
        )
    return described


def licence(text: str) -> list[Json]:
    """Return a licence as CycloneDX has it: an SPDX identifier or expression, or a name."""
    if " " not in text and text in licences.ALLOWED | licences.REASONED.keys():
        return [{"license": {"id": text}}]
    if licences.allowed(text):
        return [{"expression": text}]
    return [{"license": {"name": text}}]


def sha256(digest: str) -> Json:
    """Return a hash as CycloneDX has it."""
    return {"alg": "SHA-256", "content": digest}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
