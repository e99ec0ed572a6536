"""`python -m tests.cluster.newer_node …` is `poe …` of a release with a newer protocol of nodes.

`POE_TEST_PROTOCOL` and `POE_TEST_PROTOCOL_MIN` are the versions that it speaks.
"""

import os
import sys

from poe.cluster import identity

# Whoever takes these from there does so later, when a node begins.
identity.PROTOCOL = int(os.environ["POE_TEST_PROTOCOL"])  # type: ignore[misc]
identity.PROTOCOL_MIN = int(os.environ["POE_TEST_PROTOCOL_MIN"])  # type: ignore[misc]

if __name__ == "__main__":
    from poe.cli import main

    sys.exit(main())
