"""The pairs of the PyPI avro package's own compatibility tests, put to us and to Java."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import pytest

from headworks.compatibility import Policy, check_pair
from tests.headworks.compatibility.agreement import read
from tests.headworks.compatibility.oracle import Oracle, compact

pytestmark = pytest.mark.contract


def collected() -> list[tuple[str, str]]:
    """Run that package's tests with an ear on its checker: every pair it is asked about."""
    module = pytest.importorskip("avro.test.test_compatibility")
    pairs: list[tuple[str, str]] = []
    real = module.ReaderWriterCompatibilityChecker.get_compatibility

    def listen(self: Any, reader: Any, writer: Any, *rest: Any, **more: Any) -> Any:
        if not rest and not more:
            pairs.append((compact(reader.to_json()), compact(writer.to_json())))
        return real(self, reader, writer, *rest, **more)

    checker = module.ReaderWriterCompatibilityChecker
    with mock.patch.object(checker, "get_compatibility", listen):
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        suite.run(unittest.TestResult())
    return list(dict.fromkeys(pairs))


def test_pairs_of_the_avro_package(oracle: Oracle) -> None:
    pairs = collected()
    assert len(pairs) > 100
    answers = oracle.ask_all(("compatible", *pair) for pair in pairs)
    for (reader, writer), answer in zip(pairs, answers, strict=True):
        left, right = read(reader), read(writer)
        if isinstance(left, str) or isinstance(right, str):
            assert answer[0] == "error", (reader, writer)
            continue
        ours = "INCOMPATIBLE" if check_pair(left, right, Policy.AVRO) else "COMPATIBLE"
        assert [ours] == answer[1:2], (reader, writer)
