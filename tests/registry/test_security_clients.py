"""Real clients on a guarded registry: Confluent's and our own, with every kind of credential."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from headworks._server import child_process
from headworks.errors import RefusedError, UsageError
from headworks.registry_client import RegistryClient
from tests.registry.guarding import (
    AUDIENCE,
    GRANTS,
    ISSUER,
    PASSWORDS,
    Provider,
    Signer,
    start,
    write_files,
)
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.contract

V1 = text_of(record("id:long"))


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer("one")


@pytest.fixture(scope="module")
def guarded(
    signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[child_process.Service]:
    folder = tmp_path_factory.mktemp("clients")
    keys = folder / "keys.json"
    keys.write_bytes(Provider(signer).content)
    options = ["--jwks", keys.as_uri(), "--issuer", ISSUER, "--audience", AUDIENCE]
    with start(folder, *write_files(folder, GRANTS), *options) as running:
        yield running


def confluent(url: str, **more: str) -> SchemaRegistryClient:
    config = {name.replace("_", "."): value for name, value in more.items()}
    return SchemaRegistryClient({"url": url, "max.retries": 0, **config})


def test_confluents_client_with_a_password(guarded: child_process.Service) -> None:
    user = f"writer:{PASSWORDS['writer']}"
    with confluent(guarded.url, basic_auth_user_info=user) as client:
        context = SerializationContext("shop.clicks", MessageField.VALUE)
        value = AvroSerializer(client, V1)({"id": 7}, context)
        assert value is not None
        assert AvroDeserializer(client)(value, context) == {"id": 7}
        assert client.get_subjects() == ["shop.clicks-value"]
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema("pay.x", Schema(V1, "AVRO"))
        assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)
    with (
        confluent(guarded.url, basic_auth_user_info="writer:no") as wrong,
        pytest.raises(SchemaRegistryError) as unknown,
    ):
        wrong.get_subjects()
    assert (unknown.value.http_status_code, unknown.value.error_code) == (401, 401)


def test_confluents_client_with_a_token(guarded: child_process.Service, signer: Signer) -> None:
    with SchemaRegistryClient(
        {
            "url": guarded.url,
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": signer.token("max", groups=["makers"]),
            "bearer.auth.logical.cluster": "any",
            "bearer.auth.identity.pool.id": "any",
        }
    ) as client:
        schema_id = client.register_schema("shop.token", Schema(V1, "AVRO"))
        assert client.get_schema(schema_id).schema_str


def with_user(url: str, user_info: str) -> str:
    return url.replace("http://", f"http://{user_info}@")


def test_our_client_with_a_user_in_the_url(guarded: child_process.Service) -> None:
    quoted = "w%C3%B6rds%3A%20with%20a%20colon"
    client = RegistryClient(with_user(guarded.url, f"writer:{quoted}"))
    assert client.url == guarded.url
    assert client.register("shop.url", V1).version == 1
    with pytest.raises(RefusedError, match=r"40301.*not have the role writer") as refused:
        client.register("pay.url", V1)
    assert "file of grants" in str(refused.value)


def test_our_client_with_a_user_by_settings(
    guarded: child_process.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_USERNAME", "reader")
    monkeypatch.setenv("HEADWORKS_PASSWORD", PASSWORDS["reader"])
    assert RegistryClient(guarded.url).latest("shop.none") is None
    # What is nearer counts more: the URL, and then what the caller says.
    root = RegistryClient(guarded.url, username="root", password=PASSWORDS["root"])
    root.set_compatibility("shop.settings", "FULL")
    stranger = with_user(guarded.url, "stranger:x")
    with pytest.raises(RefusedError, match="'stranger'"):
        RegistryClient(stranger).subjects()
    monkeypatch.setenv("HEADWORKS_PASSWORD", "")
    with pytest.raises(UsageError, match="user 'reader' has no password"):
        RegistryClient(guarded.url)


def test_our_client_with_a_token(guarded: child_process.Service, signer: Signer) -> None:
    token = signer.token("max", groups=["makers"])
    assert RegistryClient(guarded.url, token=token).register("shop.t", V1).version == 1
    asked = []

    def fresh() -> str:
        asked.append(1)
        return token

    client = RegistryClient(guarded.url, token=fresh)
    assert client.latest("shop.t")
    assert client.latest("shop.t")
    assert len(asked) == 2
    with pytest.raises(RefusedError, match="get a new token"):
        RegistryClient(guarded.url, token="x.y.z").subjects()
    with pytest.raises(UsageError, match="give one of them"):
        RegistryClient(guarded.url, token=token, username="root")


def test_a_refusal_says_what_to_do_and_no_secret(guarded: child_process.Service) -> None:
    with pytest.raises(RefusedError) as nobody:
        RegistryClient(guarded.url).subjects()
    assert nobody.value.status == 401
    assert "HEADWORKS_USERNAME" in str(nobody.value)
    with pytest.raises(RefusedError) as wrong:
        RegistryClient(with_user(guarded.url, "root:hunter2")).subjects()
    assert "check the password of 'root'" in str(wrong.value)
    assert "hunter2" not in str(wrong.value)
    for url in (
        "htp://root:hunter2@x:1",
        "root:hunter2@x",
        "http://root:hunter2@",
        "http://root:hunter2/@x",
    ):
        with pytest.raises(UsageError) as invalid:
            RegistryClient(url)
        assert "hunter2" not in str(invalid.value)
    client = RegistryClient(with_user(guarded.url, "root:hunter2"))
    assert "hunter2" not in repr(client._transport.credentials)


def test_the_command_line_logs_in(
    guarded: child_process.Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWORKS_USERNAME", "root")
    monkeypatch.setenv("HEADWORKS_PASSWORD", PASSWORDS["root"])
    command = [
        sys.executable,
        "-P",
        "-m",
        "headworks._cli",
        "schema",
        "list",
        "--registry",
        guarded.url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("HEADWORKS_PASSWORD", "hunter2")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "check the password of 'root'" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
