"""The fuzzer's process of one target, which atheris ends by itself.

    python -m torture.fuzzer TARGET CORPUS [options of libFuzzer]

It loads Poe only once atheris watches: the code that is loaded before is not instrumented, and the
fuzzer blind. So all imports are inside.
"""

import os
import sys
from pathlib import Path

INSTRUMENTED = (
    "poe.broker.coordinator",
    "poe.cluster",
    "poe.mapping",
    "poe.protocol.envelope",
    "poe.client.spool",
    "poe.config",
    "poe.gateway.http.body",
    "poe.protocol",
    "poe.security.scram",
    "poe.storage",
)
"""Where the readers are."""


def main() -> None:
    """Fuzz one target."""
    import logging

    import atheris

    logging.getLogger("poe").setLevel(logging.CRITICAL + 1)
    name, corpus = sys.argv.pop(1), sys.argv[1]
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from torture import fuzz_cluster, fuzz_files, fuzz_wire

        target, seeds = (fuzz_wire.TARGETS | fuzz_files.TARGETS | fuzz_cluster.TARGETS)[name]
        for seed in seeds:
            target(seed)
    from torture import mutants

    mutants.apply_chosen()
    for number, seed in enumerate(seeds):
        Path(corpus, f"seed-{number}").write_bytes(seed)
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
    os._exit(0)


if __name__ == "__main__":
    main()
