"""The server's half of a connection: requests, phases, and holds, without a socket."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._kafka.protocol import ApiKey, RequestHeader, connection_state
from headworks._kafka.protocol.apis import APIS, BEFORE_LOGIN, Api
from headworks._kafka.protocol.connection_state import (
    NO_DATA,
    TRANSITIONS,
    ConnectionState,
    Event,
    Hold,
    NeedData,
    Phase,
    PhaseInput,
    ProtocolError,
)

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Limits:
    """Small limits."""

    max_request_bytes: int = 1000
    max_other_request_bytes: int = 500
    max_login_bytes: int = 100
    max_in_flight: int = 10
    max_pending: int = 4
    max_unsent_bytes: int = 50


def framed(key: int, version: int, size: int = 14) -> bytes:
    """A request of `size` bytes behind its length; its client id is null."""
    head = struct.pack(">hhih", key, version, 7, -1)
    tags = b"\0" if key in APIS and APIS[key].is_flexible(version) else b""
    return struct.pack(">i", size) + (head + tags).ljust(size, b"\0")


def opened() -> ConnectionState:
    return ConnectionState(Limits(), login_required=False)


def at_login() -> ConnectionState:
    return ConnectionState(Limits(), login_required=True)


def event_of(state: ConnectionState, data: bytes) -> Event:
    return state.next_event(bytearray(b"xx" + data), 2, 2 + len(data))


def events(state: ConnectionState, pieces: list[bytes]) -> list[Event]:
    """Every request, and the error that ends them, of bytes that arrive in these pieces."""
    buffer, start, found = bytearray(), 0, list[Event]()
    for piece in pieces:
        buffer += piece
        while not isinstance(event := state.next_event(buffer, start, len(buffer)), NeedData):
            found.append(event)
            if isinstance(event, ProtocolError):
                return found
            start = event.end
    return found


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_an_open_connection_takes_every_served_api_and_version(api: Api) -> None:
    for version in range(api.minimum, api.maximum + 1):
        event = event_of(opened(), framed(api.key, version))
        if api.serves(version) or api.key in (ApiKey.PRODUCE, ApiKey.SASL_HANDSHAKE):
            assert isinstance(event, RequestHeader), version
            assert (event.key, event.version, event.start, event.end) == (api.key, version, 6, 20)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_before_the_login_only_sasl_and_api_versions_are_taken(api: Api) -> None:
    event = event_of(at_login(), framed(api.key, api.maximum))
    if api.key in BEFORE_LOGIN:
        assert isinstance(event, RequestHeader)
    else:
        message = f"API {api.name} before login: a client without SASL?"
        assert event == ProtocolError(message, api.key)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (framed(99, 0), "API 99 is not served"),
        (framed(ApiKey.PRODUCE, 14), "API produce version 14 is not served"),
        (framed(ApiKey.PRODUCE, -1), "API produce version -1 is not served"),
        (framed(ApiKey.FETCH, 19), "API fetch version 19 is not served"),
        (framed(ApiKey.METADATA, 1, 501), "metadata of 501 bytes: at most 500 are taken"),
        (struct.pack(">i", 7), "a request of 7 bytes is not within 8..1000"),
        (struct.pack(">i", -1), "a request of -1 bytes is not within 8..1000"),
        (struct.pack(">i", 1001), "a request of 1001 bytes is not within 8..1000"),
        (b"GET / HTTP/1.1", "a request of 1195725856 bytes is not within 8..1000; it speaks HTTP"),
        (b"\x16\x03\x01\x02", "a request of 369295618 bytes is not within 8..1000; a TLS client,"),
        (struct.pack(">ihhih", 10, 3, 1, 7, 99), "request header runs over the request"),
    ],
)
def test_an_error_is_a_value(data: bytes, message: str) -> None:
    event = event_of(opened(), data)
    assert isinstance(event, ProtocolError)
    assert event.message.startswith(message)


def test_more_data_is_asked_for_by_the_size_of_the_request() -> None:
    whole = framed(ApiKey.METADATA, 1, 60)
    for size in range(4):
        assert event_of(opened(), whole[:size]) is NO_DATA
    for size in range(4, len(whole)):
        assert event_of(opened(), whole[:size]) == NeedData(64)


def test_produce_may_be_larger_than_others_and_nothing_may_before_the_login() -> None:
    assert isinstance(event_of(opened(), framed(ApiKey.PRODUCE, 7, 1000)), RequestHeader)
    assert isinstance(event_of(at_login(), framed(ApiKey.SASL_HANDSHAKE, 1, 101)), ProtocolError)


_requests = st.lists(
    st.one_of(
        st.builds(framed, st.sampled_from([0, 1, 3, 17, 18, 36, 99]), st.integers(-1, 13)),
        st.builds(framed, st.sampled_from([0, 1, 3]), st.just(1), st.integers(10, 600)),
        st.binary(max_size=20),
    ),
    max_size=6,
)


@given(_requests, st.lists(st.integers(0, 200), max_size=20), st.booleans())
def test_the_pieces_in_which_bytes_arrive_make_no_difference(
    requests: list[bytes], sizes: list[int], login: bool
) -> None:
    data = b"".join(requests)
    whole = events(ConnectionState(Limits(), login_required=login), [data])
    pieces, rest = [], data
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    pieces.append(rest)
    assert events(ConnectionState(Limits(), login_required=login), pieces) == whole
    single = [data[at : at + 1] for at in range(len(data))]
    assert events(ConnectionState(Limits(), login_required=login), single) == whole


@pytest.mark.parametrize("step", PhaseInput)
@pytest.mark.parametrize("phase", Phase)
def test_phases_change_by_the_table_only(phase: Phase, step: PhaseInput) -> None:
    state = at_login()
    state.phase = phase
    if (phase, step) not in TRANSITIONS:
        with pytest.raises(KeyError):
            state.move(step)
        assert state.phase is phase
        return
    state.move(step)
    assert state.phase is TRANSITIONS[phase, step]
    assert state.receives == state.takes_requests == (state.phase in (Phase.LOGIN, Phase.OPEN))


def test_the_module_shows_the_table() -> None:
    shown = re.findall(r"^    ([A-Z]+) +([A-Z_]+) +([A-Z]+)$", connection_state.__doc__ or "", re.M)
    table = [(phase.name, step.name, to.name) for (phase, step), to in TRANSITIONS.items()]
    assert shown == table


def test_the_login_lifts_its_limits() -> None:
    state = at_login()
    assert (state.max_in_flight, state.max_request_bytes) == (1, 100)
    state.move(PhaseInput.LOGIN_SUCCEEDED)
    assert (state.max_in_flight, state.max_request_bytes) == (10, 1000)


def test_every_hold_stops_receiving_until_all_are_released() -> None:
    state = opened()
    for hold in Hold:
        state.hold(hold)
        assert not state.receives
    assert not state.takes_requests
    state.release(Hold.VALIDATION)
    assert (state.receives, state.takes_requests) == (False, True)
    state.release(Hold.MEMORY)
    assert not state.receives
    state.release(Hold.REPLIES)
    assert state.receives


@pytest.mark.parametrize(
    ("waiting", "pending", "unsent", "held"),
    [
        (9, 3, 50, False),
        (10, 0, 0, True),
        (0, 4, 0, True),
        (0, 0, 51, True),
    ],
)
def test_replies_that_are_due_are_limited(
    waiting: int, pending: int, unsent: int, held: bool
) -> None:
    state = opened()
    assert state.hold_for_replies(waiting, pending, unsent) is held
    assert state.receives is not held


@pytest.mark.parametrize(
    ("waiting", "pending", "unsent", "released"),
    [
        (5, 2, 50, True),
        (6, 0, 0, False),
        (0, 3, 0, False),
        (0, 0, 51, False),
    ],
)
def test_a_hold_for_replies_ends_at_half_of_the_limits(
    waiting: int, pending: int, unsent: int, released: bool
) -> None:
    state = opened()
    state.hold(Hold.REPLIES)
    assert state.release_replies(waiting, pending, unsent) is released
    assert state.receives is released
