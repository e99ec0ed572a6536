"""What the console ships: small, and what others made is what its manifest says."""

import json
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request

from poe.gateway import console
from poe.gateway.console.static_files import StaticFiles

STATIC = Path(console.__file__).parent / "static"
WHOLE_MAX = 60_000
VENDORED_MAX = 30_000


def packed_bytes(*paths):
    """Return what files take on the wire."""
    files = StaticFiles()
    asked = Request({"type": "http", "headers": [(b"accept-encoding", b"gzip")]})
    return sum(len(files.reply(str(each.relative_to(STATIC)), asked).body) for each in paths)


def test_all_that_the_browser_loads_is_small():
    assert packed_bytes(*(each for each in STATIC.rglob("*") if each.is_file())) <= WHOLE_MAX


def test_what_others_made_is_what_the_manifest_says():
    manifest = json.loads((STATIC / "vendor" / "manifest.json").read_text())
    found = {each.name for each in (STATIC / "vendor").iterdir()} - {"manifest.json"}
    assert found == {each["file"] for each in manifest}
    for each in manifest:
        content = (STATIC / "vendor" / each["file"]).read_bytes()
        assert sha256(content).hexdigest() == each["sha256"], each["file"]
        assert each["licence"] in {"MIT", "Apache-2.0"}
    assert packed_bytes(*(STATIC / "vendor" / each["file"] for each in manifest)) <= VENDORED_MAX


def test_no_page_takes_html_from_anywhere_or_asks_elsewhere():
    for path in STATIC.rglob("*.js"):
        if path.parent.name == "vendor":
            continue
        text = path.read_text()
        for word in ("innerHTML", "dangerouslySet", "eval(", "new Function", "http://", "https://"):
            assert word not in text, f"{word} in {path.name}"
