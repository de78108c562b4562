"""Names, docs and payloads that would be scripts, were they not escaped."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from fastavro import parse_schema, schemaless_writer
from markupsafe import escape
from playwright.sync_api import Browser

from headworks._wire import prefix
from tests.console.browser import PATIENCE, assert_everything_fits, opened
from tests.console.fetch import Fetch
from tests.console.stage import Stage

pytestmark = pytest.mark.e2e

EVIL = "\"'><img src=x onerror=window.pwned=1><script>window.pwned=1</script></textarea>{{7*7}}"
# Ways out of text, of attributes, of addresses, of JSON, of templates, and of a terminal.
PAYLOADS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    "</title><script>window.pwned=1</script>",
    "</textarea><script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "--><script>window.pwned=1</script><!--",
    "]]><script>window.pwned=1</script>",
    '" autofocus onfocus=window.pwned=1 x="',
    "' autofocus onfocus=window.pwned=1 x='",
    "` onmouseover=window.pwned=1 `",
    "javascript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "//evil.example/x.js",
    "../../static/console.js",
    "{{ 7*7 }}{% for x in [].__class__.__base__.__subclasses__() %}{% endfor %}",
    "${7*7}#{7*7}<%= 7*7 %>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<form action=//evil.example/><button autofocus>",
    "<style>*{display:none}</style>",
    "<div hx-get=/static/console.js hx-trigger=load hx-on=window.pwned=1>",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "\u2028\u2029\u202e<script>window.pwned=1</script>",
    "\x1b]0;pwned\x07\x00<script>window.pwned=1</script>",
    "$(touch pwned); `touch pwned` | & ; > pwned '\"",
)
TOPIC = "hostile"
LONG = TOPIC + "a" * 53 + "." + "b" * 188  # the longest name of a topic
# What no page of ours holds, and a payload would make.
SEEDS = "img[src=x], svg[onload], iframe, base, style, [onfocus], [onmouseover], [hx-on]"
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Hostile",
    "doc": EVIL,
    "headworks": {"topic": TOPIC, "owner": EVIL},
    EVIL: EVIL,
    "fields": [
        {"name": "text", "type": "string", "doc": EVIL, "default": EVIL},
        *(
            {"name": f"f{number}", "type": "string", "doc": text, "default": text, text: text}
            for number, text in enumerate(PAYLOADS)
        ),
    ],
}


@pytest.fixture(scope="module")
def hostile(stage: Stage) -> Stage:
    address, registry = stage.stack.broker.address, stage.registry
    registered = registry.register(f"{TOPIC}-value", json.dumps(SCHEMA))
    registry.register(f"{EVIL}/other-value", json.dumps({**SCHEMA, "doc": "again"}))
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    out = io.BytesIO()
    schemaless_writer(
        out, parse_schema(SCHEMA), {"text": EVIL, **{f"f{n}": p for n, p in enumerate(PAYLOADS)}}
    )
    producer = Producer({"bootstrap.servers": address})
    for value in (prefix(registered.id) + out.getvalue(), EVIL.encode(), prefix(99999) + b"x"):
        producer.produce(TOPIC, value, EVIL, headers=[(EVIL, EVIL.encode())])
    for text in PAYLOADS:
        producer.produce(TOPIC, text.encode(), text, headers=[(text, text.encode())])
    assert producer.flush(60) == 0
    group = Consumer({"bootstrap.servers": address, "group.id": EVIL})
    group.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    group.close()
    fetch = Fetch(stage.url)
    fetch.until("/topics.json", lambda data: TOPIC in json.dumps(data))
    fetch.until("/groups.json", lambda data: "pwned" in json.dumps(data))
    fetch.until(f"/schemas.json?q={TOPIC}", lambda data: data["rows"])
    return stage


def test_nothing_that_is_shown_becomes_a_script(browser: Browser, hostile: Stage) -> None:
    name, group = quote(f"{EVIL}/other-value", safe=""), quote(EVIL, safe="")
    paths = [
        "/",
        "/topics",
        f"/topics?q={group}",
        f"/topics/{TOPIC}/messages",
        f"/topics/{TOPIC}/messages?field={group}&value={group}",
        f"/topics/{TOPIC}/messages/0/0",
        f"/topics/{TOPIC}/messages/0/1",
        f"/topics/{TOPIC}/messages?limit=100",
        *(f"/topics/{TOPIC}/messages/0/{3 + number}" for number in range(0, len(PAYLOADS), 3)),
        "/schemas",
        f"/schemas/{TOPIC}-value/versions",
        f"/schemas/{name}/versions",
        f"/try?subject={TOPIC}-value",
        "/groups",
        f"/groups/{group}/lag",
        f"/{group}",
        f"/topics/{group}/messages",
    ]
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    try:
        for path in paths:
            page.goto(hostile.url + path)
            page.wait_for_load_state("load")
            assert page.evaluate("window.pwned") is None, path
            assert page.locator(SEEDS).count() == 0, path
            assert "49" not in page.title()
            assert page.url.startswith(hostile.url), path
        page.goto(f"{hostile.url}/try")
        page.fill("#schema", json.dumps(SCHEMA | {"doc": EVIL * 2}))
        page.click("text=Try it")
        page.wait_for_selector("#gate")
        assert page.evaluate("window.pwned") is None
        assert page.locator("img[src=x]").count() == 0
    finally:
        page.close()


def test_json_is_json_and_holds_no_markup(hostile: Stage) -> None:
    fetch = Fetch(hostile.url)
    for path in (
        f"/topics/{TOPIC}/messages.json?limit=100",
        f"/schemas/{TOPIC}-value/versions.json",
    ):
        answer = fetch(path)
        assert answer.headers["content-type"] == "application/json"
        assert "<" not in answer.body
        assert EVIL in json.dumps(answer.json, ensure_ascii=False).replace('\\"', '"')


def test_a_row_has_the_headers_of_its_message(hostile: Stage) -> None:
    page = Fetch(hostile.url)(f"/topics/{TOPIC}/messages?partition=0&offset=0").body
    row = page.partition('id="d0-0"')[2].partition("</details>")[0]
    assert f"{escape(EVIL)}: {escape(EVIL)}" in row


def test_what_does_not_decode_is_said_in_its_row(hostile: Stage) -> None:
    rows = Fetch(hostile.url).data(f"/topics/{TOPIC}/messages.json?limit=100")["rows"]
    problems = {row["offset"]: row["problem"] for row in rows}
    assert problems[0] is None
    assert "magic byte" in problems[1]
    assert problems[2]


def test_no_name_is_too_long_for_a_page(browser: Browser, stage: Stage) -> None:
    address, registry = stage.stack.broker.address, stage.registry
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(LONG, 1, 1)])[LONG].result(60)
    field = {"name": "f" * 120, "type": "string", "doc": "d" * 200, "default": "v" * 200}
    added = {"name": "g" * 120, "type": "string", "default": "w" * 200}
    schema: dict[str, Any] = {"type": "record", "name": "N" * 120, "doc": "d" * 300}
    schema["headworks"] = {"topic": LONG, "owner": "o" * 120}
    for fields in ([field], [field, added]):
        registry.register(f"{LONG}-value", json.dumps({**schema, "fields": fields}))
    producer = Producer({"bootstrap.servers": address})
    producer.produce(LONG, b"v" * 400, b"k" * 200, headers=[("h" * 100, b"v" * 100)])
    assert producer.flush(60) == 0
    group = Consumer({"bootstrap.servers": address, "group.id": LONG})
    group.commit(offsets=[TopicPartition(LONG, 0, 1)], asynchronous=False)
    group.close()
    fetch = Fetch(stage.url)
    for overview in ("/topics.json", "/groups.json", "/schemas.json"):
        fetch.until(overview, lambda data: LONG in json.dumps(data))
    fetch.until(f"/topics/{LONG}/messages.json", lambda data: data["rows"])
    pages = ["/", "/topics", "/schemas", "/groups", "/lineage", f"/search?q={LONG[:60]}"]
    pages += [
        f"/topics/{LONG}/{page}" for page in ("messages", "messages/0/0", "charts", "lineage")
    ]
    pages += [f"/schemas/{LONG}-value/{page}" for page in ("versions", "usage")]
    with opened(browser) as page:
        for path in [*pages, f"/try?subject={LONG}-value", f"/groups/{LONG}/lag"]:
            page.goto(stage.url + path)
            assert_everything_fits(page)
