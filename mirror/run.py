"""The mirror as a process: checks first, then one thread per source until a signal.

Rules: it starts only if both sides, and the registries to compare, answer. It ends with every
acknowledged message committed, and with the error of the first source that cannot continue.
"""

from __future__ import annotations

import json
import signal

from headworks._mirror.audit_tier import MirrorAuditTier
from headworks._mirror.metrics import MirrorMetrics
from headworks._mirror.options import MirrorOptions, MirrorSource
from headworks._mirror.progress import MirrorProgress
from headworks._mirror.schema_ids import SchemaIdCheck
from headworks._mirror.session import SourceContext
from headworks._mirror.stream import MirrorStream
from headworks._mirror.topics import MirroredTopics
from headworks._stop_event import StopEvent
from headworks.registry_client import RegistryClient


def run(options: MirrorOptions) -> None:
    """Mirror until SIGTERM or SIGINT."""
    stopping = StopEvent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    found = [_source_context(options, source) for source in options.sources]
    page = None
    if options.metrics is not None:
        page = MirrorMetrics(options.metrics, [one.progress for one in found])
    tier = None
    try:
        if options.audit:
            tier = MirrorAuditTier(
                options.target_client, options.registry, options.folder, tier=options.tier
            )
        streams = [
            MirrorStream(
                options,
                source,
                SourceContext(one.topics, one.schema_ids, tier, one.progress),
                stopping,
                stopping.set,
            )
            for source, one in zip(options.sources, found, strict=True)
        ]
        for stream in streams:
            stream.start()
        _announce(options, page)
        while not stopping.wait(0.5):
            pass
        _join(streams)
    finally:
        if tier is not None:
            tier.close()
        if page is not None:
            page.stop()


def _source_context(options: MirrorOptions, source: MirrorSource) -> SourceContext:
    """Return what a source's sessions share, after checking that its servers answer."""
    topics = MirroredTopics(source.client, options.target_client, options.wants)
    topics.check()
    ids = None
    if source.registry is not None:
        theirs, ours = RegistryClient(source.registry), RegistryClient(options.registry)
        for registry in (theirs, ours):
            registry.subjects()  # raises UnreachableError
        ids = SchemaIdCheck(theirs, ours, copy=options.copy_schemas)
    return SourceContext(topics, ids, None, MirrorProgress(source.bootstrap))


def _announce(options: MirrorOptions, page: MirrorMetrics | None) -> None:
    sources = [source.bootstrap for source in options.sources]
    if options.as_json:
        listen = "" if page is None else page.address
        told = {"service": "mirror", "listen": listen, "from": sources, "to": options.target}
        print(json.dumps(told), flush=True)
        return
    print(f"mirroring {', '.join(sources)} into {options.target} as {options.tier}", flush=True)
    if page is not None:
        print(f"metrics at {page.url}", flush=True)


def _join(streams: list[MirrorStream]) -> None:
    failures = []
    for stream in streams:
        try:
            stream.join()
        except BaseException as error:
            failures.append(error)
    if failures:
        raise failures[0]
