"""The yardstick: one plain FastAPI route that answers from a dictionary, and nothing around it.

Run as `python -m bench.registry.plain`; prints its address, then serves until it is ended.
"""

from __future__ import annotations

import json
import socket
import sys

import uvicorn
from fastapi import FastAPI

from bench.registry.schemas import event

app = FastAPI()
_SCHEMAS = {number: {"schemaType": "AVRO", "schema": event(20, number)} for number in range(1, 101)}


@app.get("/schemas/ids/{number}")
def read(number: int) -> dict[str, str]:
    return _SCHEMAS[number]


def main() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(json.dumps({"listen": f"127.0.0.1:{sock.getsockname()[1]}"}) + "\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    main()
