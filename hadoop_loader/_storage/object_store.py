"""The objects of an S3 bucket, over boto3, as far as a warehouse needs them.

Rules:

- Every process finds credentials as AWS's own tools do: no task carries them. A task does carry the
  endpoint and the region, because they may not be set on its machine.
- A request without a response is repeated only if that changes nothing, or if it can be found out
  afterwards who was first.
- Errors of the store are raised as the OSError of a local disk, and UnreachableError if it does not
  respond. When a request is answered, the object is whole and durable.
"""

from __future__ import annotations

import email.utils
import errno
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import IO, Any

from headworks.errors import HeadworksError, UnreachableError, UsageError

_PART_BYTES = 64 << 20
_MAX_DELETE_KEYS = 1000
_WRITER_METADATA = "headworks-writer"
_ERRNO_OF = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 412: errno.EEXIST}
_HTTP_CONFLICT = 409
_MAX_ATTEMPTS = 5
_AWS_HOST = re.compile(r"\.amazonaws\.com(\.cn)?$")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, and its content if it was read."""

    etag: str
    size: int  # bytes
    modified: float  # seconds since the epoch, by the store's clock
    age: float  # seconds since then, by the store's clock
    writer: str  # an id that its writer put into the metadata
    data: bytes = b""  # the content, if it was read


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """A name under a prefix: an object, or a folder if `size` is None."""

    name: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket."""

    name: str
    endpoint: str | None  # of a store other than AWS
    region: str | None
    seconds: float | None = None  # wait this long for an answer, and do not retry

    def head(self, key: str) -> StoredObject:
        """Return what is known of an object; FileNotFoundError if it is missing."""
        with _raising_os_errors(self, key):
            return _stored_object(self._client.head_object(Bucket=self.name, Key=key))

    def get(self, key: str) -> StoredObject:
        """Return a small object with its content."""
        with _raising_os_errors(self, key):
            answer = self._client.get_object(Bucket=self.name, Key=key)
            return _stored_object(answer, answer["Body"].read())

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Return bytes of an object: `length`, or fewer at its end."""
        span = f"bytes={offset}-{offset + length - 1}"
        with _raising_os_errors(self, key):
            answer = self._client.get_object(Bucket=self.name, Key=key, Range=span)
            return bytes(answer["Body"].read())

    def put(self, key: str, data: bytes) -> None:
        """Write an object in place of an older one."""
        with _raising_os_errors(self, key):
            self._client.put_object(Bucket=self.name, Key=key, Body=data)

    def create(self, key: str, data: bytes) -> str:
        """Create an object and return its entity tag; FileExistsError if it exists.

        If a response was lost and the request was sent again, the writer's name in the object's
        metadata shows who was first.
        """
        writer = uuid.uuid4().hex
        for attempt in range(_MAX_ATTEMPTS):
            try:
                return self._put_if(key, data, writer, IfNoneMatch="*")
            except FileExistsError:
                found = self.head(key)
                if found.writer != writer:
                    raise
                return found.etag
            except InterruptedError:  # another process is writing it right now
                time.sleep(0.05 * 2**attempt)
        raise FileExistsError(errno.EEXIST, "is being written by others all the time", key)

    def replace(self, key: str, data: bytes, etag: str, writer: str) -> str:
        """Replace an object that still has this tag, and return the new tag.

        Raises FileExistsError if another process wrote it.
        """
        try:
            return self._put_if(key, data, writer, IfMatch=etag)
        except (FileNotFoundError, InterruptedError):
            raise FileExistsError(errno.EEXIST, "was written by another", key) from None

    def upload(self, key: str, file: IO[bytes]) -> None:
        """Write an object of any size in place of an older one."""
        with _raising_os_errors(self, key):
            self._client.upload_fileobj(file, self.name, key, Config=_transfer_config())

    def copy(self, key: str, target: str) -> None:
        """Copy an object to another key; FileNotFoundError if it is missing."""
        source = {"Bucket": self.name, "Key": key}
        with _raising_os_errors(self, key):
            self._client.copy(source, self.name, target, Config=_transfer_config())

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; missing ones are no error."""
        left = iter(keys)
        while some := list(islice(left, _MAX_DELETE_KEYS)):
            wanted = {"Objects": [{"Key": key} for key in some], "Quiet": True}
            with _raising_os_errors(self, some[0]):
                answer = self._client.delete_objects(Bucket=self.name, Delete=wanted)
            for failed in answer.get("Errors", ()):
                raise OSError(errno.EIO, f"S3: {failed.get('Message', '')}", failed.get("Key"))

    def keys(self, prefix: str) -> Iterator[str]:
        """Iterate over all keys with a prefix."""
        for page in self._pages(prefix):
            yield from (str(one["Key"]) for one in page.get("Contents", ()))

    def list_folder(self, prefix: str) -> Iterator[BucketEntry]:
        """Iterate over the entries under a prefix with a final slash (itself: an empty name)."""
        for page in self._pages(prefix, Delimiter="/"):
            for one in page.get("Contents", ()):
                yield BucketEntry(str(one["Key"]).removeprefix(prefix), int(one["Size"]))
            for one in page.get("CommonPrefixes", ()):
                yield BucketEntry(str(one["Prefix"]).removeprefix(prefix).rstrip("/"), None)

    def first_keys(self, prefix: str, count: int) -> list[str]:
        """Return the first `count` keys with a prefix."""
        with _raising_os_errors(self, prefix):
            page = self._client.list_objects_v2(Bucket=self.name, Prefix=prefix, MaxKeys=count)
        return [str(one["Key"]) for one in page.get("Contents", ())]

    @property
    def _client(self) -> Any:
        return _client(self)

    def _put_if(self, key: str, data: bytes, writer: str, **condition: str) -> str:
        with _raising_os_errors(self, key):
            answer = self._client.put_object(
                Bucket=self.name,
                Key=key,
                Body=data,
                Metadata={_WRITER_METADATA: writer},
                **condition,
            )
        return str(answer["ETag"])

    def _pages(self, prefix: str, **given: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2")
        with _raising_os_errors(self, prefix):
            yield from pages.paginate(Bucket=self.name, Prefix=prefix, **given)


def open_bucket(name: str) -> Bucket:
    """Return a bucket, with the endpoint and the region of this process."""
    endpoint, region = endpoint_and_region()
    return Bucket(name, endpoint, region)


@cache
def endpoint_and_region() -> tuple[str | None, str | None]:
    """Return the configured endpoint, or None if it is AWS's own, and the region."""
    boto3 = _boto3()
    with _raising_usage_errors():
        meta = boto3.session.Session().client("s3").meta
    host = meta.endpoint_url.partition("://")[2].partition("/")[0].partition(":")[0]
    region = None if meta.region_name == "aws-global" else meta.region_name
    return (None, region) if _AWS_HOST.search(host) else (meta.endpoint_url, region or "us-east-1")


@cache
def _client(bucket: Bucket) -> Any:
    """Return the client of this process: it is thread-safe, and expensive to create."""
    boto3 = _boto3()
    from botocore.config import Config

    hasty = bucket.seconds is not None
    config = Config(
        connect_timeout=bucket.seconds or 10,
        read_timeout=bucket.seconds or 60,
        retries={"mode": "standard", "total_max_attempts": 1 if hasty else 5},
        s3={"addressing_style": "path" if bucket.endpoint else "auto"},
    )
    with _raising_usage_errors():
        return boto3.session.Session().client(
            "s3", endpoint_url=bucket.endpoint, region_name=bucket.region, config=config
        )


@cache
def _transfer_config() -> Any:
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES)


def _boto3() -> Any:
    try:
        import boto3
    except ImportError:
        raise UsageError(
            "a warehouse in S3 needs boto3, which is not installed",
            fix="pip install 'headworks[s3]'",
        ) from None
    return boto3


def _stored_object(answer: dict[str, Any], data: bytes = b"") -> StoredObject:
    """Return the object of a GET or HEAD response, with its age by the store's clock."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    modified = answer["LastModified"].timestamp()
    now = email.utils.parsedate_to_datetime(date).timestamp() if date else modified
    writer = str(answer.get("Metadata", {}).get(_WRITER_METADATA, ""))
    size = int(answer["ContentLength"])
    return StoredObject(str(answer["ETag"]), size, modified, max(0.0, now - modified), writer, data)


@contextmanager
def _raising_usage_errors() -> Iterator[None]:
    """Raise UsageError for errors in AWS's own settings."""
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except (BotoCoreError, ValueError) as error:
        raise UsageError(
            f"the settings for S3 cannot be: {error}",
            fix="see AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE and ~/.aws/config",
        ) from None


@contextmanager
def _raising_os_errors(bucket: Bucket, key: str) -> Iterator[None]:
    from botocore import exceptions as of_aws

    try:
        yield
    except of_aws.ClientError as error:
        raise _error_of(bucket, key, error.response) from None
    except (
        of_aws.NoCredentialsError,
        of_aws.PartialCredentialsError,
        of_aws.CredentialRetrievalError,
        of_aws.TokenRetrievalError,
    ) as error:
        raise UsageError(
            f"S3 wants credentials, and there are none that work: {error}",
            fix="give them as to AWS's own tools: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "AWS_PROFILE, or a role of the machine",
        ) from None
    except of_aws.ParamValidationError as error:
        raise UsageError(
            f"s3a://{bucket.name} cannot be: {' '.join(str(error).split())}",
            fix="give s3a://BUCKET/FOLDER",
        ) from None
    except of_aws.BotoCoreError as error:
        raise _unreachable(bucket, str(error)) from None


def _error_of(bucket: Bucket, key: str, answer: dict[str, Any]) -> OSError | HeadworksError:
    """Return an error response of the store as the OSError of a local disk."""
    error, status = answer.get("Error", {}), answer["ResponseMetadata"]["HTTPStatusCode"]
    code, message = str(error.get("Code", status)), str(error.get("Message", ""))
    if code == "NoSuchBucket":
        return UsageError(f"there is no bucket {bucket.name}", fix="create it, or name another one")
    if status >= 500 or status == 429:
        return _unreachable(bucket, f"{code}: {message}")
    if status == _HTTP_CONFLICT:
        return InterruptedError(errno.EINTR, f"S3: {message}", key)
    return OSError(_ERRNO_OF.get(status, errno.EIO), f"S3 says {code}: {message}", key)


def _unreachable(bucket: Bucket, why: str) -> UnreachableError:
    return UnreachableError(
        f"S3 does not answer for bucket {bucket.name}: {why}",
        fix="see that it can be reached, and AWS_ENDPOINT_URL if it is not AWS's own, then run "
        "again; nothing is lost, and the next run finishes the work of this one",
    )
