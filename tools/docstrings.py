"""Check the docstrings of all public objects with numpydoc.

An object is public if one of MODULES lists it in `__all__`, or if it is a method or property of a
public class and its name has no leading underscore. Members that a class inherits from another
package are not checked. `[tool.numpydoc_validation]` in pyproject.toml lists the checks; these
exceptions do not fit there:

- Dataclasses may document their fields under Attributes instead of Parameters, and enums have no
  parameters: users read them, and do not make them.
- Keyword-only settings of dataclasses may be documented in any order.
- Properties need no examples.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from numpydoc.docscrape import NumpyDocString
from numpydoc.hooks.validate_docstrings import parse_config
from numpydoc.validate import validate

ROOT = Path(__file__).parents[1]
MODULES = (
    "drolearn",
    "drolearn.boosting",
    "drolearn.dask",
    "drolearn.datasets",
    "drolearn.nn",
    "drolearn.onnx",
)
PROPERTIES = (property, cached_property)


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield names and objects; a member that several classes inherit is yielded once."""
    checked = set()
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isclass(item) or inspect.isroutine(item):
                yield f"{module.__name__}.{name}", item
            if not inspect.isclass(item):
                continue
            for member in dir(item):
                owner = next((base for base in item.__mro__ if member in vars(base)), None)
                if member.startswith("_") or owner is None or (owner, member) in checked:
                    continue
                checked.add((owner, member))
                if owner.__module__.startswith("drolearn") and has_docstring(vars(owner)[member]):
                    yield f"{module.__name__}.{name}.{member}", vars(owner)[member]


def has_docstring(member: Any) -> bool:
    """Whether a member of a class is a method or a property, not a value."""
    methods = (*PROPERTIES, classmethod, staticmethod)
    # Decorators of scikit-learn return objects that are not functions.
    return isinstance(member, methods) or inspect.isfunction(inspect.unwrap(member))


def is_exempt(code: str, item: Any) -> bool:
    """Whether one of the exceptions in the module's docstring applies."""
    if code == "EX01":
        return isinstance(item, PROPERTIES)
    if code == "PR03" and dataclasses.is_dataclass(item):
        positional = [field.name for field in dataclasses.fields(item) if not field.kw_only]
        sections = NumpyDocString(inspect.getdoc(item) or "")
        documented = [entry.name for entry in sections["Parameters"]]
        return [name for name in documented if name in positional] == positional
    if code != "PR01" or not inspect.isclass(item):
        return False
    if dataclasses.is_dataclass(item):
        sections = NumpyDocString(inspect.getdoc(item) or "")
        names = {name for entry in sections["Attributes"] for name in entry.name.split(", ")}
        return names >= {field.name for field in dataclasses.fields(item) if field.init}
    return issubclass(item, Enum)


def main() -> None:
    config = parse_config(ROOT)
    count = errors = 0
    for name, item in public_objects():
        count += 1
        if config["exclude"] and config["exclude"].search(name):
            continue
        result = validate(name)
        place = Path(result["file"]).resolve().relative_to(ROOT)
        for code, message in result["errors"]:
            override = config["overrides"].get(code)
            if code not in config["checks"] or (override and override.search(result["docstring"])):
                continue
            if not is_exempt(code, item):
                errors += 1
                print(f"{place}:{result['file_line']}: {name}: {code} {message}")
    if errors:
        sys.exit(f"{errors} errors in the docstrings of {count} public objects")
    print(f"The docstrings of {count} public objects are complete.")


if __name__ == "__main__":
    main()
