"""The end of the demo: one JSON object for tools, or tables for people."""

from __future__ import annotations

from typing import Any

from headworks._cli.demo.run import DemoOutcome
from headworks._cli.output import percent, print_table


def as_json(outcome: DemoOutcome) -> dict[str, Any]:
    """The outcome as the JSON object that `--format json` prints."""
    answers = outcome.answers
    assert answers is not None
    return {
        "broker": outcome.broker,
        "tables": answers.tables,
        "rows_by_schema_version": {"flights": answers.rows_by_version},
        "old_rows_show_default": answers.old_rows_show_default,
        "old_values": answers.old_values,
        "flights_per_month": [
            {"month": month, "schema_version": version, "flights": count}
            for month, version, count in answers.months
        ],
        "busiest_airlines": [
            {"airline": name, "flights": count} for name, count in answers.carriers
        ],
        "audit": {key: outcome.audit[key] for key in ("sent", "loaded", "lost", "duplicated")},
        "audit_topics": outcome.audit["topics"],
        "refused": outcome.refused,
        "registry_status": outcome.registry_status,
        "loads": outcome.loads,
        "seconds": outcome.seconds,
    }


def print_summary(outcome: DemoOutcome) -> None:
    """Print the outcome as tables on stdout."""
    answers = outcome.answers
    assert answers is not None
    print("\nThe breaking change was refused, by the gate and by the registry (409):\n")
    for finding in outcome.refused:
        print(f"  {finding['rule']}  {finding['message']}")
        print(f"         fix: {finding['fix']}")
    print("\nTables in Hive:\n")
    print_table(("table", "rows"), list(answers.tables.items()))
    print("\nFlights per month, by the version of the schema they were written with:\n")
    print_table(("month", "schema version", "flights"), answers.months)
    print("\nWhat rows of version 1 show in the fields that version 2 added:\n")
    print_table(
        ("reporting_system", "departure.punctuality", "rows"),
        [(v["reporting_system"], v["punctuality"], v["rows"]) for v in answers.old_values],
    )
    print("\nFlights joined with airlines:\n")
    print_table(("airline", "flights"), answers.carriers)
    print("\nAudit, producers against Hive:\n")
    print_table(
        ("topic", "attempted", "loaded", "waiting", "lost", "complete"),
        [
            (
                row["topic"],
                row["attempted"],
                row["loaded"],
                row["waiting"],
                row["lost"],
                percent(row["completeness"]),
            )
            for row in outcome.audit["topics"]
        ],
    )
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in outcome.seconds.items())
    print(f"\nSeconds: {spent}")
