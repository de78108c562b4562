"""The rule that a topic is created only if its subject is registered (`--require-subject`).

Rule: the registry is asked at each creation. While it does not answer, no such topic is created.
A topic of dead letters needs the subject of the topic that they come from: it has none itself.
"""

from __future__ import annotations

import re

from headworks._broker.topics.schema_ids import (
    ANY_ID,
    SchemaIdCache,
    SchemaIdStatus,
    SubjectSchemaId,
)
from headworks._kafka.dead_letters import DEAD_LETTER_SUFFIX
from headworks.errors import UnreachableError, UsageError


class MissingSubjectError(UsageError):
    """The topic needs a registered subject, and has none."""


class SubjectRule:
    """Applies to topics whose whole name matches `pattern`; to none if it is None.

    Raises UsageError for a pattern that is no regular expression, or without a registry.
    """

    def __init__(self, pattern: str | None, ids: SchemaIdCache | None) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._ids = ids
        if pattern is None:
            return
        if ids is None:
            raise UsageError(
                "--require-subject needs a registry to ask", fix="give --registry URL as well"
            )
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise UsageError(
                f"--require-subject {pattern!r} is no regular expression: {error}",
                fix="give a pattern of topic names, such as '.*'",
            ) from None

    async def check(self, topic: str) -> None:
        """Raise MissingSubjectError, or UnreachableError if the registry does not say."""
        if self._pattern is None or self._ids is None or not self._pattern.fullmatch(topic):
            return
        subject = f"{topic.removesuffix(DEAD_LETTER_SUFFIX)}-value"
        wanted = SubjectSchemaId(subject, ANY_ID)
        await self._ids.look_up([wanted])
        status = self._ids.status(wanted)
        if status is SchemaIdStatus.UNKNOWN:
            raise MissingSubjectError(
                f"topic {topic!r} needs the subject {subject}, which the registry at"
                f" {self._ids.url} does not have (--require-subject)",
                fix="register its schema first (`headworks schema register`)",
            )
        if status is not SchemaIdStatus.KNOWN:
            raise UnreachableError(
                f"topic {topic!r} needs the subject {subject}, and the registry at"
                f" {self._ids.url} does not answer",
                fix="start the registry, and create the topic again",
            )
