"""Lists what Poe promises: every name in `__all__` of its public packages.

`python -m tests.public_names` writes the list; the architecture test compares it, so that no name
enters or leaves the public API unseen.
"""

import importlib
import importlib.util
from pathlib import Path

PACKAGES = (
    "poe",
    "poe.actors",
    "poe.supervision",
    "poe.tables",
    "poe.thespian",
    "poe.storage",
    "poe.storage.slab_log",
    "poe.protocol",
    "poe.security",
    "poe.client",
    "poe.broker",
    "poe.gateway.http",
    "poe.mapping",
    "poe.spark",
    "poe.testing",
)
NEEDS = {"poe.spark": "pyspark", "poe.gateway.http": "starlette"}
"""Packages of extras."""

LIST = Path(__file__).with_suffix(".txt")


def present_packages() -> list[str]:
    """The public packages that can be imported."""
    return [name for name in PACKAGES if importlib.util.find_spec(NEEDS.get(name, name))]


def names_of(package: str) -> list[str]:
    """Every name that `package` exports, with the package in front."""
    exported = getattr(importlib.import_module(package), "__all__", ())
    return sorted(f"{package}.{name}" for name in exported)


def main() -> None:
    """Write the list."""
    lines = [name for package in present_packages() for name in names_of(package)]
    LIST.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
