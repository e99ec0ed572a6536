"""What a Python program that a test starts needs around it."""

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent


def environment(**variables: str) -> dict[str, str]:
    """This process's variables with Poe importable and none of Poe's own, then `variables`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("POE_")}
    # Output as a terminal shows it, whatever the machine's locale; the tree may not be installed.
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **variables}
