"""Troubles that are caused on running servers, and the alert rules that must notice each.

Broker, registry, reconciler, and mirror run as processes, and the loader runs here, without Spark.
For each trouble: the expressions of its rules are silent, the trouble is caused, and each
expression must find it in the metrics that Prometheus scraped.

Rules:

- An expression is that of the shipped rule, with its times shortened, so that hours are seconds.
- The rule's `for` is left out: the made series of tests/deploy hold it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.soak import alarm_audit_deeds as audit_deeds
from tests.soak import alarm_deeds as deeds
from tests.soak.alarm_stand import LOGIN, ORDERS, Stand
from tests.soak.live import RULES, start_prometheus

_SHORTER = {
    "[5m]": "[20s]",
    "[15m]": "[120s]",
    "[30m]": "[15s]",
    "[1h]": "[60s]",
    "[2h]": "[15s]",
    "offset 1h": "offset 30s",
    "offset 2h": "offset 15s",
    "> 3600": "> 30",
    "> 300 ": "> 20 ",
}
_SETTLING_SECONDS = 20.0
_PATIENCE_SECONDS = 300.0  # three heartbeats are missed first
_QUICK_PATIENCE_SECONDS = 120.0  # if all of QUICK stays out, its test still has time to report


@dataclass
class Report:
    """The rules that fired by caused trouble, with the seconds that it took; `wrong` is empty."""

    fired: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.fired.items())
        return "\n".join([f"{len(self.fired)} rules fired: {names}", *self.wrong])


def shortened(expression: str) -> str:
    """Return a rule's expression with shorter times."""
    expression = f"{' '.join(expression.split())} "
    for long, short in _SHORTER.items():
        expression = expression.replace(long, short)
    return expression


def expressions() -> dict[str, str]:
    """Return the shortened expressions of the shipped rules, by the name of the alert."""
    found: dict[str, str] = {}
    for path in RULES.glob("*.yml"):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            found |= {rule["alert"]: shortened(rule["expr"]) for rule in group["rules"]}
    return found


@dataclass(frozen=True, slots=True)
class Trouble:
    """A deed, the rules that must notice it, and what lasts until they have."""

    cause: Callable[[Stand], None]
    alerts: tuple[str, ...]
    during: Callable[[Stand], AbstractContextManager[None]] = lambda _: nullcontext()


def _lasting(during: Callable[[Stand], AbstractContextManager[None]], *alerts: str) -> Trouble:
    return Trouble(lambda _: None, alerts, during)


def _fault(name: str) -> Callable[[Stand], AbstractContextManager[None]]:
    return lambda stand: stand.fault(name)


QUICK = (
    Trouble(deeds.quarantine, ("QuarantineGrows",)),
    Trouble(deeds.remove_before_the_load, ("RemovedBeforeLoad", "MessagesLost", "LossAboveSla")),
    Trouble(audit_deeds.drop, ("MessagesDropped",)),
    Trouble(audit_deeds.spoil_the_audit, ("AuditHoles",)),
    Trouble(lambda stand: stand.audit.kill(), ("AuditAway",)),
    Trouble(lambda stand: stand.broker.kill(), ("BrokerDown",)),
)
"""Troubles that are noticed within seconds."""

TROUBLES = (
    # The mirror, before its source is hurt.
    Trouble(deeds.make_a_topic_again_and_again, ("MirrorRestarts",)),
    Trouble(deeds.send_too_large_a_message, ("MirrorSkips",)),
    Trouble(deeds.mirror_what_the_target_refuses, ("MirrorRefusedTopics",)),
    _lasting(deeds.stopped_target, "MirrorBehind", "MirrorCheckpointOld"),
    Trouble(lambda stand: stand.mirror.kill(), ("MirrorDown",)),
    # Logins.
    _lasting(deeds.wrong_logins, "LoginsFail"),
    Trouble(deeds.ask_with_a_wrong_password, ("RegistryCredentials",)),
    # Loader and audit.
    Trouble(deeds.load_late, ("SlowToComplete",)),
    Trouble(deeds.quarantine, ("QuarantineGrows",)),
    Trouble(deeds.load_what_nobody_counts, ("TopicNotCounted",)),
    Trouble(deeds.remove_before_the_load, ("RemovedBeforeLoad", "MessagesLost", "LossAboveSla")),
    Trouble(deeds.damage_a_batch, ("LogDamaged", "LoadStopsAtDamage")),
    Trouble(deeds.skip_the_damaged_batch, ("DamagedSkipped",)),
    Trouble(deeds.refuse_a_topic, ("TopicsRefused",)),
    Trouble(deeds.lose_a_leader, ("LoadWithoutLeader",)),
    Trouble(audit_deeds.drop, ("MessagesDropped",)),
    Trouble(
        audit_deeds.stop_loading,
        ("MessagesOverdue", "TierSilent", "TopicNeverLoaded", "ProducersQuiet"),
    ),
    Trouble(audit_deeds.load_what_nobody_reported, ("MessagesUnreported",)),
    Trouble(audit_deeds.load_again_from_the_beginning, ("MessagesDuplicated",)),
    Trouble(
        audit_deeds.kill_a_producer, ("MessagesUnresolved", "ProducerAbandoned", "ProcessVanished")
    ),
    Trouble(audit_deeds.report_from_a_wrong_clock, ("ClockSkew",)),
    # Registry, broker, and groups.
    Trouble(deeds.slow_the_registry, ("RegistrySlow",)),
    Trouble(deeds.lock_the_registrys_store, ("RegistryStoreFails", "RegistryErrors")),
    _lasting(deeds.few_descriptors, "FewDescriptors"),
    _lasting(deeds.half_requests, "RequestMemoryFull"),
    Trouble(deeds.refuse_connections, ("ConnectionsRefused",)),
    Trouble(deeds.fall_behind, ("GroupFallingBehind",)),
    Trouble(lambda _: None, ("GroupStuck",)),
    Trouble(deeds.flush_slowly, ("SlowFlushes",), _fault("slow")),
    Trouble(deeds.fill_the_disk, ("PartitionNotWritable", "BrokerErrors"), _fault("full")),
    Trouble(deeds.compact_a_damaged_log, ("CompactionFails",)),
    # Servers that are away.
    Trouble(audit_deeds.spoil_the_audit, ("AuditHoles",)),
    Trouble(audit_deeds.have_a_usual_volume_and_lose_it, ("VolumeUnusual",)),
    _lasting(audit_deeds.locked_audit_store, "AuditBehind"),
    Trouble(deeds.load_and_be_scraped, ()),  # so that the next load is not overdue yet
    Trouble(deeds.kill_the_registry, ("RegistryDown", "LoadsFail", "LoadOverdue")),
    Trouble(deeds.cut_the_loader_off, ("LoaderDown",)),
    Trouble(lambda stand: stand.audit.kill(), ("AuditAway",)),
    Trouble(lambda stand: stand.broker.kill(), ("BrokerDown",)),
    Trouble(deeds.tear_the_log, ("TornTailCut",)),
)


def campaign(folder: Path, troubles: tuple[Trouble, ...] = TROUBLES) -> Report:
    """Cause every trouble, one after the other."""
    report, rules = Report(), expressions()
    patience = _QUICK_PATIENCE_SECONDS if troubles is QUICK else _PATIENCE_SECONDS
    stand = Stand(folder, whole=troubles is not QUICK)
    watching = start_prometheus(
        folder / "prometheus", stand.at["prometheus"], stand.targets, 1, LOGIN
    )
    try:
        stand.send(ORDERS, 500)
        stand.load()
        # A rule compares with a scrape of before the trouble.
        stand.wait_for("headworks_audit_messages > 0")
        stand.wait_for("headworks_loader_topic_quarantined")
        for trouble in troubles:
            _judge(stand, trouble, rules, report, patience)
    finally:
        watching.terminate()
        watching.wait()
        stand.end()
    return report


def _judge(
    stand: Stand, trouble: Trouble, rules: dict[str, str], report: Report, patience: float
) -> None:
    names = [f"Headworks{name}" for name in trouble.alerts]
    loud, deadline = names, time.monotonic() + _SETTLING_SECONDS
    # A scrape that a starved server missed is no trouble for long.
    while (loud := [name for name in loud if stand.ask(rules[name])]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.5)
    report.wrong += [f"{name} fires without its trouble" for name in loud]
    began, fired = time.monotonic(), report.fired
    with trouble.during(stand):
        trouble.cause(stand)
        for name in _firing(stand, {name: rules[name] for name in names}, patience):
            fired[name] = time.monotonic() - began
    report.wrong += [f"{name} did not notice its trouble" for name in names if name not in fired]


def _firing(stand: Stand, waiting: dict[str, str], patience: float) -> Iterator[str]:
    """Yield the names of these rules as they fire, until all have or the patience ends."""
    deadline = time.monotonic() + patience
    while waiting:
        for name in [name for name, expression in waiting.items() if stand.ask(expression)]:
            del waiting[name]
            yield name
        if time.monotonic() > deadline:
            return
        time.sleep(0.5)
