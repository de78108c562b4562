"""The consumer SDK: an iterator over messages, decoded to generated classes.

Public: this module, `testing`, and `prometheus`. Behind it:

- `_consumer`: the iterating member of a group. `_loop`: its iteration. `_message`: the messages
  that it yields. `_last_message`: how the application ends the last one.
- `_message_step`: the message that the application has, and the step to the next one.
- `_handed_out`: the messages that the application has, and the offsets to store. `_in_flight`:
  those that are handled beside each other.
- `_membership`: the interface of both kinds of group. `_broker_membership`: groups that a broker
  balances. `_background_poll`, `_application_thread`: polling while the application is busy.
- `_fetch_buffer`: messages that were fetched. `_error_events`: events in the place of messages.
- `_handlers`: functions that handle events. `_retry`: their policy. `_attempts`: their attempts.
  `_dispatch`, `_lanes`, and `_calls`: handlers that run beside each other by key, or take
  batches. `_retrying_consumer` and `_retry_later`: messages that are put off in retry topics.
  `_tracing`: spans around handlers.
- `_arguments`: the checks of its arguments.
- `_group_config`: the settings of a member. `_zookeeper_group`: groups without a coordinator.
- `_topic_decoders`, `_decode`, `_generated_decoder`, `_conversions`, `_default_values`: message
  values to events. `_options`: the options of a consumer for type checkers.
- `_offsets`: ends, times, and offsets to start at or to rewind to.
- `_reachability`: brokers that do not answer, and closing without them.
- `_damage`: record batches with a wrong CRC.
- `_outcomes`: the end of each message. `_poison`: messages that cannot be decoded, and the writer
  of dead letters. `_dead_letters`: how these are read and sent back. `_retry_sources`: the topics
  that one group alone reads again.
- `_audit_tier`: the group as a tier of the audit. `_jsonable`: decoded values as JSON.

Rules: imports only `headworks` and third parties, because it runs in a user's process. A message
counts as processed when the application asks for the next one. A crash therefore repeats a message
and never loses one.
"""

from consumer_sdk._consumer import Consumer
from consumer_sdk._decode import DecodeError, Decoder
from consumer_sdk._handlers import Consumers
from consumer_sdk._message import Deleted, Message, Partition
from consumer_sdk._poison import OnPoison, PoisonMessageError
from consumer_sdk._retry import Retry
from headworks._kafka.damaged_batch import DamagedBatchError

__all__ = [
    "Consumer",
    "Consumers",
    "DamagedBatchError",
    "DecodeError",
    "Decoder",
    "Deleted",
    "Message",
    "OnPoison",
    "Partition",
    "PoisonMessageError",
    "Retry",
]
