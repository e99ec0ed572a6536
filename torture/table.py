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
    )
}
