"""What the console ships: small, and what others made is what its manifest says."""

import json
from hashlib import sha256
from pathlib import Path

from poe.gateway import console
from poe.gateway.console.static_files import StaticFiles

STATIC = Path(console.__file__).parent / "static"
WHOLE_MAX = 60_000
VENDORED_MAX = 30_000


def test_all_that_the_browser_loads_is_small():
    assert StaticFiles().packed_bytes() <= WHOLE_MAX


def test_what_others_made_is_what_the_manifest_says():
    manifest = json.loads((STATIC / "vendor" / "manifest.json").read_text())
    found = {each.name for each in (STATIC / "vendor").iterdir()} - {"manifest.json"}
    assert found == {each["file"] for each in manifest}
    for each in manifest:
        content = (STATIC / "vendor" / each["file"]).read_bytes()
        assert sha256(content).hexdigest() == each["sha256"], each["file"]
        assert each["licence"] in {"MIT", "Apache-2.0"}
    files = StaticFiles()
    sizes = [files.packed_size(f"vendor/{each['file']}") for each in manifest]
    assert sum(sizes) <= VENDORED_MAX


def test_no_page_takes_html_from_anywhere_or_asks_elsewhere():
    for path in STATIC.rglob("*.js"):
        if path.parent.name == "vendor":
            continue
        text = path.read_text()
        for word in ("innerHTML", "dangerouslySet", "eval(", "new Function", "http://", "https://"):
            assert word not in text, f"{word} in {path.name}"
