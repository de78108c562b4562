"""A pipeline that runs moves to three nodes of Apache Kafka, and back, while messages flow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.interop.programs import repeated_or_missing
from tests.outgrown.kafka_nodes import KafkaNodes
from tests.pipeline.moving import PARTITIONS, Pipeline
from tests.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[KafkaNodes]:
    """Three nodes on loopback."""
    made = KafkaNodes(tmp_path / "kafka", [])
    try:
        made.launch()
        made.wait()
        yield made
    finally:
        for node in made.nodes:
            node.kill()


def test_a_running_pipeline_moves_to_three_nodes_and_back(
    broker: Service, nodes: KafkaNodes, registry: Service, tmp_path: Path
) -> None:
    pipeline = Pipeline(broker.address, nodes.address, registry.url, tmp_path / "warehouse")
    group = f"readers-{pipeline.topic}"
    pipeline.join(group)
    read: list[int] = []
    for _ in range(2):
        pipeline.sent(200)
        read += pipeline.read(pipeline.old, group, until_n=100)
        pipeline.load(pipeline.old)
        pipeline.sent(100)
        pipeline.traffic.address = pipeline.new
        until(lambda: pipeline.old in pipeline.traffic.left)
        pipeline.load(pipeline.old)
        read += pipeline.read(pipeline.old, group)
        moved = pipeline.move("beginning", group)
        assert moved.groups == {group: {pipeline.topic: dict.fromkeys(range(PARTITIONS), 0)}}
        pipeline.load(pipeline.new)
        pipeline.turn()
    pipeline.traffic.end()
    pipeline.load(broker.address)
    assert repeated_or_missing(pipeline.loaded(), pipeline.traffic.sent) == ""
    read += pipeline.read(broker.address, group)
    assert repeated_or_missing(read, pipeline.traffic.sent) == ""
