"""The Kafka protocol without I/O: requests and connections out of bytes, replies into bytes."""

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import APIS, Api, ApiKey
from headworks._kafka.protocol.frame import MalformedError, RequestHeader, parse_header, seal
from headworks._kafka.protocol.messages import decode, encode

__all__ = [
    "APIS",
    "Api",
    "ApiKey",
    "ErrorCode",
    "MalformedError",
    "RequestHeader",
    "decode",
    "encode",
    "parse_header",
    "seal",
]
