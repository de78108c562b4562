"""The server side of SASL: malformed messages are failed logins."""

from __future__ import annotations

import pytest

from headworks._broker.server.sasl import LoginError, ScramExchange

pytestmark = pytest.mark.unit


def test_a_proof_that_is_not_even_ascii_is_a_failed_login() -> None:
    exchange = ScramExchange(lambda _: None, lambda: "server")
    exchange.step(b"n,,n=ann,r=client")
    with pytest.raises(LoginError, match="not base64"):
        exchange.step("c=biws,r=clientserver,p=é".encode())
