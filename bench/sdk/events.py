"""The event that is measured: a page view of ten fields and about 250 bytes, as object and dict."""

from __future__ import annotations

import importlib
import json
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from producer_sdk._generator import generate, write

TOPIC = "page_views"
_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "PageView",
    "namespace": "bench.web",
    "headworks": {"topic": TOPIC, "event_time": "header.at", "key": ["member"]},
    "fields": [
        {
            "name": "header",
            "type": {
                "type": "record",
                "name": "Header",
                "fields": [
                    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
                    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                    {"name": "host", "type": "string"},
                    {"name": "service", "type": "string"},
                ],
            },
        },
        {"name": "member", "type": "long"},
        {"name": "page", "type": "string"},
        {"name": "referrer", "type": ["null", "string"], "default": None},
        {"name": "campaign", "type": ["null", "string"], "default": None},
        {
            "name": "device",
            "type": {
                "type": "enum",
                "name": "Device",
                "symbols": ["DESKTOP", "PHONE", "TABLET"],
            },
        },
        {"name": "millis", "type": "int"},
        {"name": "scroll", "type": "double"},
        {"name": "agent", "type": "string"},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}


@dataclass(frozen=True)
class Measured:
    """The schema's text, the generated module, and one event: typed and as a dict."""

    text: str
    module: Any
    event: Any
    plain: dict[str, Any]

    def typed(self, plain: dict[str, Any]) -> Any:
        """The generated classes from what fastavro reads."""
        header, module = plain["header"], self.module
        return module.PageView(
            header=module.Header(
                id=header["id"], at=header["at"], host=header["host"], service=header["service"]
            ),
            member=plain["member"],
            page=plain["page"],
            referrer=plain["referrer"],
            campaign=plain["campaign"],
            device=module.Device(plain["device"]),
            millis=plain["millis"],
            scroll=plain["scroll"],
            agent=plain["agent"],
            tags=plain["tags"],
        )

    def written(self, member: int | None = None) -> Any:
        """The event as a program writes it that has the values at hand; its key is `member`."""
        module, values, header = self.module, self.plain, self.plain["header"]
        return module.PageView(
            header=module.Header(
                id=header["id"], at=header["at"], host=header["host"], service=header["service"]
            ),
            member=values["member"] if member is None else member,
            page=values["page"],
            referrer=values["referrer"],
            campaign=values["campaign"],
            device=module.Device.PHONE,
            millis=values["millis"],
            scroll=values["scroll"],
            agent=values["agent"],
            tags=values["tags"],
        )

    def written_dict(self) -> dict[str, Any]:
        """The same as a dict."""
        values, header = self.plain, self.plain["header"]
        return {
            "header": {
                "id": header["id"],
                "at": header["at"],
                "host": header["host"],
                "service": header["service"],
            },
            "member": values["member"],
            "page": values["page"],
            "referrer": values["referrer"],
            "campaign": values["campaign"],
            "device": "PHONE",
            "millis": values["millis"],
            "scroll": values["scroll"],
            "agent": values["agent"],
            "tags": values["tags"],
        }


def prepare(folder: Path) -> Measured:
    """Generate the classes in `folder` and make the event."""
    text = json.dumps(_SCHEMA)
    (folder / "schemas").mkdir(parents=True, exist_ok=True)
    (folder / "schemas" / "page_view.avsc").write_text(text, encoding="utf-8")
    write(generate([folder / "schemas"]), folder / "measured_events")
    sys.path.insert(0, str(folder))
    module = importlib.import_module("measured_events.bench_web")
    plain = {
        "header": {
            "id": uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF),
            "at": datetime(2026, 5, 1, 12, 30, tzinfo=UTC),
            "host": "web-17.example.com",
            "service": "frontend",
        },
        "member": 123_456_789,
        "page": "/jobs/view/1234567",
        "referrer": "https://www.example.com/search?q=data",
        "campaign": None,
        "device": "PHONE",
        "millis": 1234,
        "scroll": 0.75,
        "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
        "tags": {"experiment": "blue", "cohort": "2026-11"},
    }
    measured = Measured(text, module, None, plain)
    return Measured(text, module, measured.typed(plain), plain)
