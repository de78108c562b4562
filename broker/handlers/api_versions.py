"""ApiVersions: the served APIs. A version that is too high is answered in the oldest layout."""

from __future__ import annotations

from functools import cache

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import APIS, SASL_APIS, TRANSACTION_APIS, ApiKey
from headworks._kafka.protocol.messages import encode


@cache
def api_versions(version: int, *, login: bool = False, transactions: bool = True) -> bytes:
    """Return the body of the reply to a request of `version`.

    `login`: the broker has users. `transactions`: it has a transaction coordinator.
    """
    api = APIS[ApiKey.API_VERSIONS]
    known = api.serves(version)
    fields = {
        "error_code": ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [
            {"api_key": served.key, "min_version": served.minimum, "max_version": served.maximum}
            for served in APIS.values()
            if (login or served.key not in SASL_APIS)
            and (transactions or served.key not in TRANSACTION_APIS)
        ],
    }
    return encode(api, version if known else 0, fields)
