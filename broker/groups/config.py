"""The configs of a group of the consumer protocol, and the times that they give it.

Rules:

- The names are Kafka's. A value is a whole number of milliseconds.
- `checked` judges what a client sets. `times_of` takes what is stored, and never raises: a value
  that the broker no longer takes has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headworks._broker.groups.consumer_members import ConsumerGroupTimes

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
_MAX_DIGITS = 12  # of a value; more is out of range anyway


@dataclass(frozen=True, slots=True)
class GroupTimeConfig:
    """A config of a group; its limits are in ms."""

    name: str
    minimum: int
    maximum: int
    meaning: str

    @property
    def broker_name(self) -> str:
        """Kafka's name of the broker config that is its default."""
        return f"group.{self.name}"


GROUP_CONFIGS: Mapping[str, GroupTimeConfig] = {
    one.name: one
    for one in (
        GroupTimeConfig(
            SESSION, 500, 1_800_000, "remove a member that sends no heartbeat for this long, in ms"
        ),
        GroupTimeConfig(HEARTBEAT, 100, 60_000, "time between two heartbeats of a member, in ms"),
    )
}


def checked(configs: Mapping[str, str], defaults: ConsumerGroupTimes) -> ConsumerGroupTimes:
    """Return the times that these configs give a group. Raises ValueError with the reason."""
    values = {SESSION: _ms(defaults.session), HEARTBEAT: _ms(defaults.interval)}
    for name, text in configs.items():
        config = GROUP_CONFIGS.get(name)
        if config is None:
            raise ValueError(f"{name!r} is no group config; there are {', '.join(GROUP_CONFIGS)}")
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{name}={text!r} is no whole number of milliseconds")
        values[name] = int(text[:_MAX_DIGITS])
        if not config.minimum <= values[name] <= config.maximum:
            raise ValueError(f"{name}={text} is not in {config.minimum}..{config.maximum}")
    if values[HEARTBEAT] >= values[SESSION]:
        raise ValueError(
            f"{HEARTBEAT}={values[HEARTBEAT]} must be less than {SESSION}={values[SESSION]}"
        )
    session, interval = values[SESSION] / 1000, values[HEARTBEAT] / 1000
    # A member that waits for partitions asks no later than one that has them.
    waiting_interval = min(defaults.waiting_interval, interval)
    return replace(defaults, session=session, interval=interval, waiting_interval=waiting_interval)


def times_of(configs: Mapping[str, str], defaults: ConsumerGroupTimes) -> ConsumerGroupTimes:
    """Return the times of a group with these stored configs; `defaults` if they are not valid."""
    try:
        return checked(configs, defaults)
    except ValueError:
        return defaults


def default_of(name: str, defaults: ConsumerGroupTimes) -> str:
    """Return the default of a config, in ms."""
    return str(_ms(defaults.session if name == SESSION else defaults.interval))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
