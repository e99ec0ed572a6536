"""The one table of scenarios: what is claimed, how often it is tried, what it needs."""

from torture.scenario import Scenario

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="crash",
            rows="R1",
            claim="kill -9 under load: nothing acknowledged is lost, the server restarts by itself",
            module="crash",
            ci=100,
            release=1000,
            unit="kills",
            mutants=("ack-in-memory",),
            bite_count=10,
        ),
        Scenario(
            name="crash-nested",
            rows="R2",
            claim="kill -9 during recovery, up to five times: nothing acknowledged is lost",
            module="nested",
            ci=200,
            release=5000,
            mutants=("no-repair", "ack-in-memory"),
            bite_count=40,
        ),
        Scenario(
            name="power",
            rows="R3",
            claim="power cut under load, whole server: nothing acknowledged with fsync is lost",
            module="power",
            ci=30,
            release=1000,
            unit="cuts",
            needs=("loop",),
            mutants=("no-data-sync", "no-fsync"),
            bite_count=6,
        ),
        Scenario(
            name="power-store",
            rows="R3",
            claim="power cut at any operation, store only: nothing acknowledged with fsync is lost",
            module="power_store",
            ci=200,
            release=10_000,
            needs=("loop",),
            mutants=("no-data-sync", "no-fsync"),
            bite_count=20,
        ),
        Scenario(
            name="torn",
            rows="R6",
            claim="files cut at any byte: all whole records before the cut, and no others",
            module="torn",
            ci=1,
            release=10,
            unit="segments of 200 records",
            mutants=("no-repair",),
        ),
        Scenario(
            name="states",
            rows="R12",
            claim="every disk that a crash or a power cut may leave is recovered, twice if need be",
            module="states",
            ci=40,
            release=2000,
            unit="histories of 500 states",
            mutants=(
                "no-repair",
                "keep-half-batches",
                "no-data-sync",
                "no-index-sync",
                "no-base-folder-sync",
                "no-topics-folder-sync",
                "no-topic-folder-sync",
            ),
        ),
    )
}
