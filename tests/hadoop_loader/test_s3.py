"""A warehouse in S3, without Spark: what a place of it does, who holds it, who may commit."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hadoop_loader._commit.registry_subjects import RegistrySubjects
from hadoop_loader._storage import filesystem, object_store
from hadoop_loader._storage.filesystem import parse_path
from hadoop_loader._storage.lock import acquire_lock
from hadoop_loader._storage.object_lease import LEASE_TIMEOUTS, LeaseTimeouts, S3Lock
from hadoop_loader._storage.s3 import S3Path, s3_path
from headworks._server.child_process import Service
from headworks.errors import UnreachableError, UsageError
from tests.hadoop_loader.test_version_cache import TOPICS, Registry, wait_for_file
from tests.interop.s3 import BUCKET, LISTED
from tests.waiting import until

pytestmark = pytest.mark.contract

LIVELY = LeaseTimeouts(renewal_seconds=0.2)
HOLD = """
import sys, time
from hadoop_loader._storage.object_lease import LEASE_TIMEOUTS, LeaseTimeouts, S3Lock
from hadoop_loader._storage.s3 import s3_path
lock = S3Lock(s3_path(sys.argv[1]), LeaseTimeouts(renewal_seconds=0.2))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def root(s3: Service) -> S3Path:
    return s3_path(f"s3a://{BUCKET}/{uuid.uuid4().hex}")


def test_a_place_of_s3_has_the_names_of_a_path(s3: Service) -> None:
    place, path = parse_path("s3://bucket/a/b.json/"), PurePosixPath("/a/b.json")
    assert filesystem.hadoop_uri(place) == str(place) == "s3a://bucket/a/b.json"
    for ours, theirs in (
        (place / "c", path / "c"),
        (place.parent, path.parent),
        (place.with_name("d"), path.with_name("d")),
        (place.with_suffix(".e"), path.with_suffix(".e")),
    ):
        assert str(ours) == f"s3a://bucket{theirs}"
    assert (place.name, place.stem) == (path.name, path.stem)
    assert parse_path("s3a://bucket") / "a" == parse_path("s3a://bucket/a")
    with pytest.raises(UsageError, match="s3:///x names no folder of a bucket"):
        parse_path("s3:///x")


def test_a_task_carries_the_s3_endpoint_and_no_credentials(s3: Service, root: S3Path) -> None:
    sent = pickle.dumps(root)
    assert pickle.loads(sent).bucket.endpoint == s3.url
    assert b"test" not in sent
    settings = filesystem.spark_settings(root)
    assert settings[f"spark.hadoop.fs.s3a.bucket.{BUCKET}.endpoint"] == s3.url
    assert settings[f"spark.hadoop.fs.s3a.bucket.{BUCKET}.path.style.access"] == "true"


def test_the_versions_of_many_topics_are_kept_in_a_bucket(root: S3Path) -> None:
    registry, file = Registry(), root / "_headworks" / "registry-versions"
    expected = RegistrySubjects(registry, cache=file).versions(TOPICS)
    wait_for_file()
    registry.asked.clear()
    assert RegistrySubjects(registry, cache=file).versions(TOPICS) == expected
    assert registry.asked == ["latest", "numbers"]


def test_of_many_that_create_an_object_one_does(root: S3Path) -> None:
    def one(n: int) -> bool:
        try:
            filesystem.create_exclusive(root / "7.json", f"{n}" * 1000)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        winners = [n for n, won in enumerate(pool.map(one, range(8))) if won]
    assert len(winners) == 1
    assert (root / "7.json").read_text() == f"{winners[0]}" * 1000


def test_who_created_an_object_and_never_heard_so_is_told(
    root: S3Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an answer is lost, and the client library sends the request again."""
    sent = object_store.Bucket._put_if

    def twice(self: Any, *args: Any, **condition: Any) -> str:
        sent(self, *args, **condition)
        return sent(self, *args, **condition)

    monkeypatch.setattr(object_store.Bucket, "_put_if", twice)
    filesystem.create_exclusive(root / "7.json", "mine")
    monkeypatch.undo()
    with pytest.raises(FileExistsError):
        filesystem.create_exclusive(root / "7.json", "mine")


def test_files_and_folders_are_as_on_a_disk(root: S3Path) -> None:
    folder, file = root / "t" / "datepartition=1970-01-01", root / "t" / "f"
    assert not folder.is_dir()
    folder.mkdir(parents=True)
    assert folder.is_dir()
    assert root.is_dir()
    filesystem.write_durably(file, "é")
    assert (file.read_text(), filesystem.file_size(file)) == ("é", 2)
    assert time.time() - 3600 < filesystem.modified_time(file) < time.time() + 3600
    assert [p.name for p in filesystem.sorted_glob(root / "t", "*")] == [
        "datepartition=1970-01-01",
        "f",
    ]
    filesystem.remove_empty(root / "t")
    filesystem.rename(file, folder / "g")
    filesystem.link_or_copy(folder / "g", folder / "h")
    assert not file.exists()
    with pytest.raises(FileNotFoundError):
        filesystem.rename(file, folder / "g")
    with pytest.raises(FileNotFoundError):
        file.unlink()
    assert [str(p) for p in (root / "t").glob("*/g")] == [str(folder / "g")]
    filesystem.remove_tree(folder)
    filesystem.remove_tree(folder)
    assert not root.is_dir()
    with pytest.raises(FileNotFoundError):
        list(root.iterdir())
    root.mkdir()
    filesystem.remove_empty(root)
    assert not root.exists()


def test_more_objects_than_a_listing_has_are_found_and_removed(
    root: S3Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2 * LISTED + 1):
        filesystem.write_durably(root / f"{n:04d}", "")
    assert len(filesystem.sorted_glob(root, "*")) == 2 * LISTED + 1
    monkeypatch.setattr(object_store, "_MAX_DELETE_KEYS", 7)
    filesystem.remove_tree(root)
    assert filesystem.sorted_glob(root, "*") == []


def test_what_pyarrow_writes_it_reads_in_parts_too(
    root: S3Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"n": list(range(1_000_000))})
    monkeypatch.setattr(object_store, "_PART_BYTES", 5 << 20)
    object_store._transfer_config.cache_clear()
    with filesystem.open_for_write(root / "f") as out:
        pq.write_table(rows, out, compression="none", use_dictionary=False)
        size = out.tell()
    assert size > 5 << 20
    filesystem.link_or_copy(root / "f", root / "g")
    assert filesystem.file_size(root / "g") == size
    assert pq.ParquetFile(filesystem.parquet_source(root / "g")).read().equals(rows)
    object_store._transfer_config.cache_clear()


def test_what_s3_says_is_an_error_of_ours(
    root: S3Path, s3: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="there is no bucket nowhere"):
        s3_path("s3a://nowhere/x").mkdir()
    with pytest.raises(UsageError, match="give s3a://BUCKET/FOLDER"):
        s3_path("s3a://no_bucket!/x").mkdir()
    away = replace(root, bucket=replace(root.bucket, endpoint="http://127.0.0.1:1", seconds=1.0))
    with pytest.raises(UnreachableError, match="S3 does not answer for bucket headworks"):
        away.exists()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    nobody = replace(root, bucket=replace(root.bucket, seconds=2.0))
    with pytest.raises(UsageError, match="S3 wants credentials"):
        nobody.exists()


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    object_store.endpoint_and_region.cache_clear()
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UsageError, match=r"needs boto3.*not installed") as refused:
        parse_path("s3a://bucket/folder")
    assert refused.value.fix == "pip install 'headworks[s3]'"


def test_a_text_that_is_replaced_is_read_as_it_was_or_is(root: S3Path) -> None:
    file, done = root / "report", threading.Event()
    texts = {"x" * 10, "y" * 1000}
    filesystem.write_atomically(file, "x" * 10, durable=False)

    def write() -> None:
        while not done.is_set():
            for text in sorted(texts):
                filesystem.write_atomically(file, text, durable=False)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert {file.read_text() for _ in range(50)} <= texts
    finally:
        done.set()
        writer.join()


def test_a_store_without_conditional_writes_is_refused(
    root: S3Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heedless(ignored: str) -> None:
        def put(self: Any, key: str, data: bytes, writer: str, **condition: str) -> str:
            if ignored in condition:
                self.put(key, data)
                return ""
            return sent(self, key, data, writer, **condition)

        monkeypatch.setattr(object_store.Bucket, "_put_if", put)

    sent = object_store.Bucket._put_if
    for ignored, header in (("IfNoneMatch", "If-None-Match"), ("IfMatch", "If-Match")):
        heedless(ignored)
        with pytest.raises(UsageError, match=f"does not honor {header}"):
            S3Lock(root / "_headworks" / "lease")


def test_a_second_loader_is_refused_with_the_holder(root: S3Path) -> None:
    first = S3Lock(root / "lease", LIVELY)
    with pytest.raises(UsageError, match=rf"in use by another loader, process {os.getpid()} on "):
        S3Lock(root / "lease")
    first.check()
    first.release()
    after = acquire_lock(root)
    assert isinstance(after, S3Lock)
    after.check()
    after.release()


@pytest.fixture
def holder(root: S3Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root / "lease")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_lease_ends_after_its_holder(root: S3Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    after = S3Lock(root / "lease", LeaseTimeouts(expiry_seconds=2.0))
    after.check()
    after.release()


def test_a_lease_that_was_taken_over_is_noticed(root: S3Path) -> None:
    asleep = S3Lock(root / "lease", LeaseTimeouts(renewal_seconds=0.5))
    after = until(lambda: _taken_at_once(root))
    assert after is not None
    until(lambda: asleep._lost)
    with pytest.raises(UnreachableError, match=r"hold on warehouse .* broke"):
        asleep.check()
    asleep.release()
    after.check()
    after.release()


def _taken_at_once(root: S3Path) -> S3Lock | None:
    """Whoever has it; None if that one renewed it at this moment."""
    try:
        return S3Lock(root / "lease", LeaseTimeouts(expiry_seconds=0.0))
    except UsageError:
        return None


def test_a_holder_that_cannot_renew_gives_up_before_another_may_begin(
    root: S3Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = S3Lock(root / "lease", LeaseTimeouts(trusted_seconds=1.0, renewal_seconds=0.2))

    def lost(*_: Any) -> str:
        raise UnreachableError("away")

    monkeypatch.setattr(object_store.Bucket, "replace", lost)
    began = time.monotonic()

    def broke() -> bool:
        try:
            held.check()
        except UnreachableError:
            return True
        return False

    until(broke)
    assert time.monotonic() - began < LEASE_TIMEOUTS.expiry_seconds
    held.release()


def test_a_lost_answer_does_not_lose_the_lease(
    root: S3Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, answers = object_store.Bucket.replace, iter([UnreachableError("lost")])

    def unheard(self: Any, *args: Any) -> str:
        etag = sent(self, *args)
        for error in answers:
            raise error
        return etag

    held = S3Lock(root / "lease", LIVELY)
    monkeypatch.setattr(object_store.Bucket, "replace", unheard)
    before, began = held._bucket.head(held._file.key).etag, held._renewed_at
    seen: set[str] = {before}

    def renewed_again() -> bool:
        seen.add(held._bucket.head(held._file.key).etag)
        return len(seen) > 4

    until(renewed_again)
    until(lambda: held._renewed_at > began)
    held.check()
    held.release()
