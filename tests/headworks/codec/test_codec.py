"""Generated encoders against fastavro: for any schema and any data the bytes are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.headworks.codec.codec_law import check_codec, check_defaults

pytestmark = pytest.mark.contract

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=120, deadline=None, suppress_health_check=QUIET)
@given(seed=st.integers(0, 2**32))
def test_bytes_equal_fastavros(tmp_path: Path, seed: int) -> None:
    check_codec(tmp_path, seed)


@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
@given(seed=st.integers(0, 2**32))
def test_defaults_are_the_schemas(tmp_path: Path, seed: int) -> None:
    check_defaults(tmp_path, seed)
