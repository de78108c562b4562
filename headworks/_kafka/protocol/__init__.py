"""The Kafka protocol without I/O: bytes in, requests out; replies in, bytes out."""

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import APIS, Api, find_api
from headworks._kafka.protocol.frame import Header, MalformedError, parse_header, seal
from headworks._kafka.protocol.messages import decode, encode

__all__ = [
    "APIS",
    "Api",
    "ErrorCode",
    "Header",
    "MalformedError",
    "decode",
    "encode",
    "find_api",
    "parse_header",
    "seal",
]
