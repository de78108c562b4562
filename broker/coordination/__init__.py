"""Where topics, their configs, committed offsets and producer ids live."""

from broker.coordination.interface import Committed, Coordination, Topic, TopicExistsError
from broker.coordination.local import LocalCoordination

__all__ = ["Committed", "Coordination", "LocalCoordination", "Topic", "TopicExistsError"]
