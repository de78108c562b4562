"""Where `headworks up` serves its metrics."""

from __future__ import annotations

import pytest

from headworks._cli.stack.metrics_addresses import MetricsAddresses
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


def test_the_ports_are_fixed_beside_the_default_broker() -> None:
    pages = MetricsAddresses.of(None, fixed=True)
    assert pages.urls == {
        "broker": "http://127.0.0.1:9400/metrics",
        "audit": "http://127.0.0.1:9401/metrics",
    }


def test_one_option_moves_all_or_turns_them_off() -> None:
    assert MetricsAddresses.of("10.0.0.5:9700", fixed=True) == MetricsAddresses(
        "10.0.0.5:9700", "10.0.0.5:9701"
    )
    assert MetricsAddresses.of("[::1]:9700", fixed=True) == MetricsAddresses(
        "[::1]:9700", "[::1]:9701"
    )
    assert MetricsAddresses.of("none", fixed=True).urls == {}


@pytest.mark.parametrize("option", ["9400", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65535"])
def test_what_is_no_address_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        MetricsAddresses.of(option, fixed=True)


@pytest.mark.e2e
@pytest.mark.parametrize("option", [None, "127.0.0.1:0"])
def test_other_stacks_get_free_ports(option: str | None) -> None:
    pages = MetricsAddresses.of(option, fixed=False)
    assert pages.broker != pages.audit
    assert not pages.broker or not pages.broker.endswith(":0")
