"""How long brokers have answered no request, by librdkafka's statistics.

librdkafka reports a broker that refuses connections at once. It is silent for more than a minute
about one that accepts them and never answers, such as a broker that hangs.

Rules:

- The connection to a group's coordinator is no evidence of silence: it may wait for other members.
- One connection without an open request, or one that received something lately, ends the silence.
  A new connection proves nothing until its first answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_BROKERS = '"brokers":'
_DECODER = json.JSONDecoder()
_CONNECTED = {"UP", "UPDATE"}
_UNUSED = {"INIT", "DOWN", "TRY_CONNECT"}  # librdkafka reports what leads to these itself


def brokers_of(statistics: str) -> Mapping[str, Mapping[str, Any]] | None:
    """Return the part about the brokers, without parsing the rest; None if there is none."""
    at = statistics.find(_BROKERS)
    if at < 0:
        return None
    found: Mapping[str, Mapping[str, Any]] = _DECODER.raw_decode(statistics, at + len(_BROKERS))[0]
    return found


def silence(statistics: str, patience: float) -> float | None:
    """Return the seconds without an answer if they exceed `patience`, and 0 if a broker answers.

    None: no connection is in use.
    """
    brokers = brokers_of(statistics) or {}
    waits = [wait for b in brokers.values() if (wait := _wait(b, patience)) is not None]
    if not waits:
        return None
    return min(waits) if min(waits) >= patience else 0.0


def _wait(broker: Mapping[str, Any], patience: float) -> float | None:
    """Return how long a broker has not answered; None if nothing was asked of it."""
    is_coordinator = broker["source"] == "logical"
    received = broker["rxidle"]  # in microseconds; -1: never
    if broker["state"] in _CONNECTED:
        if is_coordinator:
            return None if received < 0 or broker["waitresp_cnt"] else received / 1e6
        if not broker["waitresp_cnt"]:
            return 0.0
        return float(received if received >= 0 else broker["stateage"]) / 1e6
    if is_coordinator or broker["state"] in _UNUSED:
        return None
    connecting = float(broker["stateage"]) / 1e6
    return connecting if connecting >= patience else None
