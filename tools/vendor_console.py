"""Renews what others made for the console: `python -m tools.vendor_console`; needs npm.

Takes the versions that are written here from npm's registry, and writes the files with a manifest
of name, version, licence and sha256, to which a test compares them.
"""

import json
import subprocess
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

VENDOR: Final = Path(__file__).parent.parent / "poe/gateway/console/static/vendor"


class Vendored(NamedTuple):
    """One file of a package."""

    package: str
    version: str
    licence: str
    inside: str
    """Its path in the package."""
    file: str
    """What it is called here."""


FILES: Final = (
    Vendored("htm", "3.1.1", "Apache-2.0", "preact/standalone.module.js", "htm-preact.js"),
)


def main() -> None:
    """Write all files and the manifest."""
    manifest = []
    with tempfile.TemporaryDirectory() as folder:
        for each in FILES:
            command = ["npm", "pack", "--silent", f"{each.package}@{each.version}"]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            archive = Path(folder) / f"{each.package}-{each.version}.tgz"
            with tarfile.open(archive) as packed:
                member = packed.extractfile(f"package/{each.inside}")
                assert member is not None, "it is a file"
                content = member.read()
            (VENDOR / each.file).write_bytes(content)
            row = {name: getattr(each, name) for name in ("file", "package", "version", "licence")}
            manifest.append({**row, "sha256": sha256(content).hexdigest()})
    (VENDOR / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
