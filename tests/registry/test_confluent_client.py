"""The real confluent-kafka client, unmodified and with its defaults, against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from headworks._server.child_process import Service
from headworks._wire import unframe
from tests.registry.rest import fresh, record, text_of

pytestmark = pytest.mark.contract

V1 = text_of(record("id:long", "name:string"))
V2 = text_of(record("id:long", "name:string", 'city:string="?"'))
BROKEN = text_of(record("id:long", "name:string", "city:string"))


@pytest.fixture
def client(shared: Service) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": shared.url}) as made:
        yield made


def avro(text: str) -> Schema:
    return Schema(text, "AVRO")


def test_serializer_and_deserializer_with_every_default(client: SchemaRegistryClient) -> None:
    topic = fresh("orders/2026 é")
    context = SerializationContext(topic, MessageField.VALUE)
    serializer = AvroSerializer(client, V1)
    event = {"id": 7, "name": "seven"}
    value = serializer(event, context)
    assert value is not None
    assert unframe(value)[0] == client.get_latest_version(f"{topic}-value").schema_id
    assert AvroDeserializer(client)(value, context) == event
    assert AvroDeserializer(client, V2)(value, context) == {**event, "city": "?"}


def test_serializer_resolves_without_registering(client: SchemaRegistryClient) -> None:
    topic = fresh("topic")
    context = SerializationContext(topic, MessageField.VALUE)
    client.register_schema(f"{topic}-value", avro(V1))
    for config in (
        {"auto.register.schemas": False},
        {"auto.register.schemas": False, "use.latest.version": True},
    ):
        assert AvroSerializer(client, V1, conf=config)({"id": 1, "name": "n"}, context)


def test_reads_and_lists(client: SchemaRegistryClient) -> None:
    subject = fresh("a/b c:%25+é")
    first = text_of(record("id:long", "name:string", name="Listed"))
    second = text_of(record("id:long", "name:string", 'city:string="?"', name="Listed"))
    schema_id = client.register_schema(subject, avro(first))
    full = client.register_schema_full_response(subject, avro(second))
    assert full.version == 2
    listed = client.get_version(subject, 1)
    assert client.get_schema(schema_id).schema_str == listed.schema.schema_str
    assert client.get_schema(schema_id, subject_name=subject).schema_type == "AVRO"
    assert client.get_schema_by_guid(str(full.guid)).schema_str == full.schema.schema_str
    assert subject in client.get_subjects()
    assert client.get_subjects(subject_prefix=subject) == [subject]
    assert client.get_versions(subject) == [1, 2]
    assert client.get_subjects_by_schema_id(schema_id) == [subject]
    assert [(v.subject, v.version) for v in client.get_schema_versions(schema_id)] == [(subject, 1)]
    assert client.lookup_schema(subject, avro(second)).version == 2
    assert client.get_latest_version(subject).version == 2
    assert client.get_schema_types() == ["AVRO"]
    assert "." in client.get_contexts()


def test_compatibility_and_settings(client: SchemaRegistryClient) -> None:
    subject = fresh()
    client.register_schema(subject, avro(V1))
    assert client.test_compatibility(subject, avro(V2))
    assert not client.test_compatibility(subject, avro(BROKEN))
    assert not client.test_compatibility_all_versions(subject, avro(BROKEN))
    assert client.get_compatibility() == "BACKWARD_TRANSITIVE"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, avro(BROKEN))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.value.error_message
    client.set_compatibility(subject, "none")
    assert client.get_compatibility(subject) == "NONE"
    client.register_schema(subject, avro(BROKEN))
    client.set_config(
        subject,
        ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="major"),
    )
    assert client.get_config(subject).compatibility_group == "major"
    client.delete_config(subject)
    with pytest.raises(SchemaRegistryError) as absent:
        client.get_config(subject)
    assert absent.value.error_code == 40408


def test_references(client: SchemaRegistryClient) -> None:
    base, user = fresh("address"), fresh("user")
    address = text_of(record("street:string", name="Address", namespace="geo"))
    client.register_schema(base, avro(address))
    uses = [SchemaReference("geo.Address", base, 1)]
    schema = Schema(text_of(record("home:geo.Address")), "AVRO", uses)
    schema_id = client.register_schema(user, schema)
    stored = client.get_schema(schema_id)
    assert [(r.name, r.subject, r.version) for r in stored.references or ()] == [
        ("geo.Address", base, 1)
    ]
    assert client.get_referenced_by(base, 1) == [schema_id]
    context = SerializationContext(user.removesuffix("-value"), MessageField.VALUE)
    event = {"home": {"street": "Main"}}
    value = AvroSerializer(client, schema)(event, context)
    assert AvroDeserializer(client)(value, context) == event
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(base)
    assert refused.value.error_code == 42206


def test_deletion(client: SchemaRegistryClient, shared: Service) -> None:
    subject = fresh()
    schema_id = client.register_schema(subject, avro(V1))
    client.register_schema(subject, avro(V2))
    assert client.delete_version(subject, 2) == 2
    assert client.get_versions(subject) == [1]
    assert client.get_versions(subject, deleted=True) == [1, 2]
    assert client.get_versions(subject, deleted_only=True) == [2]
    assert client.delete_subject(subject) == [1]
    assert subject not in client.get_subjects()
    assert subject in client.get_subjects(deleted_only=True)
    with SchemaRegistryClient({"url": shared.url}) as another:
        assert another.get_schema(schema_id).schema_str
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as absent:
        client.get_versions(subject, deleted=True)
    assert absent.value.error_code == 40401


def test_mode(client: SchemaRegistryClient) -> None:
    subject = fresh()
    assert client.get_global_mode() == "READWRITE"
    with pytest.raises(SchemaRegistryError) as unset:
        client.get_mode(subject)
    assert unset.value.error_code == 40409
    assert client.update_mode(subject, "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, avro(V1))
    assert refused.value.error_code == 42205
    assert client.delete_mode(subject) == "READONLY"
    assert client.register_schema(subject, avro(V1))


def test_metadata(client: SchemaRegistryClient) -> None:
    subject = fresh()
    properties = MetadataProperties({"team é": "a b/c"})
    metadata = Metadata(tags=None, properties=properties, sensitive=None)
    client.register_schema(subject, Schema(V1, "AVRO", metadata=metadata))
    found = client.get_latest_with_metadata(subject, {"team é": "a b/c"})
    assert found.version == 1
    with pytest.raises(SchemaRegistryError) as absent:
        client.get_latest_with_metadata(subject, {"team é": "other"})
    assert absent.value.error_code == 40403
