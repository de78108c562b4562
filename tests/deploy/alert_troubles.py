"""The trouble of every alert rule, as series given to its expression: one sample a minute.

Rule: an alert without series here fires by their absence.
"""

from __future__ import annotations

from typing import Final

TROUBLES: Final[dict[str, tuple[str, ...]]] = {
    "HeadworksBrokerDown": ('up{job="headworks",server="broker"} 0x120',),
    "HeadworksPartitionNotWritable": (
        'headworks_broker_log_writable{topic="t",partition="0"} 0x120',
    ),
    "HeadworksLogDamaged": ('headworks_broker_log_damage{topic="t",partition="0"} 1x120',),
    "HeadworksTornTailCut": ("headworks_broker_recovery_cut_bytes_total 512x120",),
    "HeadworksBrokerErrors": (
        'headworks_broker_errors_total{api="produce",error="kafka_storage_error"} 0+1x120',
    ),
    "HeadworksConnectionsRefused": ("headworks_broker_connections_refused_total 0+1x120",),
    "HeadworksLoginsFail": (
        'headworks_broker_logins_total{mechanism="PLAIN",outcome="failed"} 0+60x120',
    ),
    "HeadworksRequestMemoryFull": (
        "headworks_broker_request_memory_bytes 95x120",
        "headworks_broker_request_memory_limit_bytes 100x120",
    ),
    "HeadworksSlowFlushes": (
        'headworks_broker_flush_seconds_bucket{le="1.0"} 0+1x120',
        'headworks_broker_flush_seconds_bucket{le="5.0"} 0+60x120',
        'headworks_broker_flush_seconds_bucket{le="+Inf"} 0+60x120',
    ),
    "HeadworksCompactionFails": ("headworks_broker_compactions_failed_total 0+1x120",),
    "HeadworksFewDescriptors": (
        'process_open_fds{job="headworks",server="broker"} 90x120',
        'process_max_fds{job="headworks",server="broker"} 100x120',
    ),
    "HeadworksRegistryDown": ('up{job="headworks",server="registry"} 0x120',),
    "HeadworksRegistryStoreFails": ("headworks_registry_store_errors_total 0+1x120",),
    "HeadworksRegistryErrors": (
        'headworks_registry_requests_total{route="/subjects",method="GET",status="500"} 0+1x120',
    ),
    "HeadworksRegistrySlow": (
        'headworks_registry_request_seconds_bucket{le="1.0"} 0+1x120',
        'headworks_registry_request_seconds_bucket{le="5.0"} 0+60x120',
        'headworks_registry_request_seconds_bucket{le="+Inf"} 0+60x120',
    ),
    "HeadworksRegistryCredentials": (
        'headworks_registry_authentication_failures_total{reason="password"} 0+60x120',
    ),
    "HeadworksLoaderDown": ('up{job="headworks",server="load"} 0x120',),
    "HeadworksLoadOverdue": ("headworks_loader_last_success_timestamp_seconds 0x120",),
    "HeadworksLoadsFail": ('headworks_loader_runs_total{outcome="failed"} 0+1x120',),
    "HeadworksTopicsRefused": ("headworks_loader_topics_refused 1x120",),
    "HeadworksQuarantineGrows": ('headworks_loader_topic_quarantined{topic="t"} 0+1x120',),
    "HeadworksRemovedBeforeLoad": ('headworks_loader_topic_lost{topic="t"} 0+1x120',),
    "HeadworksDamagedSkipped": ('headworks_loader_topic_damaged{topic="t"} 0+1x120',),
    "HeadworksLoadStopsAtDamage": ("headworks_loader_partitions_damaged 1x120",),
    "HeadworksLoadWithoutLeader": ("headworks_loader_partitions_leaderless 1x120",),
    "HeadworksGroupFallingBehind": (
        'headworks_broker_group_lag{group="g",topic="t"} 2000+100x120',
    ),
    "HeadworksGroupStuck": ('headworks_broker_group_lag{group="g",topic="t"} 5x240',),
    "HeadworksMirrorDown": ('up{job="headworks",server="mirror"} 0x120',),
    "HeadworksMirrorBehind": ('headworks_mirror_lag_seconds{source="s",topic="t"} 700x120',),
    "HeadworksMirrorCheckpointOld": (
        'headworks_mirror_checkpoint_age_seconds{source="s"} 400x120',
        'headworks_mirror_lag_messages{source="s",topic="t"} 5x120',
    ),
    "HeadworksMirrorRefusedTopics": ('headworks_mirror_refused_topics{source="s"} 1x120',),
    "HeadworksMirrorSkips": ('headworks_mirror_lost_total{source="s",topic="t"} 0+1x120',),
    "HeadworksMirrorRestarts": ('headworks_mirror_sessions_total{source="s"} 0+1x120',),
    "HeadworksMessagesLost": ('headworks_audit_findings{kind="lost"} 1x120',),
    "HeadworksMessagesDropped": ('headworks_audit_findings{kind="dropped"} 1x120',),
    "HeadworksMessagesUnresolved": ('headworks_audit_findings{kind="unresolved"} 1x120',),
    "HeadworksMessagesOverdue": ('headworks_audit_findings{kind="overdue"} 1x120',),
    "HeadworksMessagesDuplicated": ('headworks_audit_findings{kind="duplicated"} 1x120',),
    "HeadworksMessagesUnreported": ('headworks_audit_findings{kind="surplus"} 1x120',),
    "HeadworksLossAboveSla": (
        'headworks_audit_messages{tier="hadoop",state="lost"} 5x120',
        'headworks_audit_messages{tier="hadoop",state="attempted"} 1000x120',
    ),
    "HeadworksTierSilent": ('headworks_audit_findings{kind="silent"} 1x120',),
    "HeadworksProducersQuiet": ('headworks_audit_findings{kind="quiet"} 1x120',),
    "HeadworksProcessVanished": ('headworks_audit_findings{kind="vanished"} 1x120',),
    "HeadworksVolumeUnusual": ('headworks_audit_findings{kind="volume"} 1x120',),
    "HeadworksProducerAbandoned": ('headworks_audit_findings{kind="abandoned"} 1x120',),
    "HeadworksClockSkew": ('headworks_audit_findings{kind="skewed"} 1x120',),
    "HeadworksTopicNeverLoaded": ('headworks_audit_findings{kind="unknown"} 1x120',),
    "HeadworksTopicNotCounted": ('headworks_audit_findings{kind="unreferenced"} 1x120',),
    "HeadworksSlowToComplete": (
        'headworks_audit_complete_seconds{tier="hadoop",quantile="0.95"} 2000x120',
    ),
    "HeadworksAuditHoles": ("headworks_audit_hole_messages 1x120",),
    "HeadworksAuditBehind": ("headworks_audit_behind_messages 2000000x120",),
    "HeadworksAuditAway": (),
}
"""By alert: the series in the notation of `promtool test rules`."""


BORN: Final[dict[str, tuple[str, ...]]] = {
    alert: (
        "headworks_loader_topics_refused 0x120",
        f'headworks_loader_topic_{name}{{topic="new"}} {"_ " * 100}3x20',
        # Another loader, which had losses of a topic of this name before.
        f'headworks_loader_topic_{name}{{site="other",topic="new"}} 7x120',
    )
    for alert, name in (
        ("HeadworksQuarantineGrows", "quarantined"),
        ("HeadworksRemovedBeforeLoad", "lost"),
        ("HeadworksDamagedSkipped", "damaged"),
    )
}
"""Troubles in the first load of a topic, whose series begins with them."""
