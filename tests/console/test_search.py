"""The search over everything finds what a principal may see, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources.group_state import GroupState
from headworks._console.sources.groups import GroupRow, GroupsSnapshot, StateSince
from headworks._console.sources.subjects import SubjectRow, SubjectsSnapshot
from headworks._console.sources.topics import TopicRow, TopicsSnapshot
from headworks._console.views.search import MAX_HITS, Searched, search
from headworks._console.views.visibility import CanSee
from headworks.groups import GroupDescription, GroupKind

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Sees:
    """Sees the names with this beginning."""

    prefix: str

    def topic(self, name: str) -> bool:
        return name.startswith(self.prefix)

    group = subject = topic


def topic(name: str) -> TopicRow:
    return TopicRow(name, 1, 5, 5, None, ())


def subject(name: str, *paths: str, owner: str | None = None) -> SubjectRow:
    return SubjectRow(name, None, 1, 1, None, "T", 1, owner, "Docs.", False, None, paths)


def group(name: str, *topics: str) -> GroupRow:
    described = GroupDescription(name, GroupKind.CLASSIC, True, "stable", (), ())
    return GroupRow(described, topics, GroupState.OK, "", StateSince(0, earlier=False), ())


EVERY = Searched(
    TopicsSnapshot({name: topic(name) for name in ("shop.orders", "web.clicks")}),
    SubjectsSnapshot(
        {
            one.subject: one
            for one in (
                subject("shop.orders-value", "customer.iban", "total", owner="finance"),
                subject("web.clicks-value", "iban_seen", owner="web-team"),
            )
        }
    ),
    GroupsSnapshot({"shop.bill": group("shop.bill", "shop.orders", "web.clicks")}, {}),
    None,
)


def found(q: str, sees: CanSee = ALL_VISIBLE) -> dict[str, list[str]]:
    return {one.kind: [hit.name for hit in one.hits] for one in search(EVERY, sees, q).found}


def test_by_field_owner_topic_and_group() -> None:
    assert found("iban") == {"field": ["shop.orders-value", "web.clicks-value"]}
    assert found("finance") == {"owner": ["shop.orders-value"]}
    assert found("ORDERS")["topic"] == ["shop.orders"]
    assert found("orders")["group"] == ["shop.bill"]
    assert found("") == found("orders nothing") == {}


def test_what_is_not_visible_is_not_found_nor_named() -> None:
    result = search(EVERY, Sees("shop."), "iban")
    assert [hit.name for one in result.found for hit in one.hits] == ["shop.orders-value"]
    (groups,) = search(EVERY, Sees("shop."), "bill").found
    assert groups.hits[0].says == "reads shop.orders"
    assert found("clicks", Sees("shop.")) == {}


def test_hits_are_bounded_and_counted() -> None:
    many = TopicsSnapshot({f"t{n}": topic(f"t{n}") for n in range(100)})
    (one,) = search(Searched(many, None, None, None), ALL_VISIBLE, "t").found
    assert (len(one.hits), one.total) == (MAX_HITS, 100)
