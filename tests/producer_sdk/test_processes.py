"""Producers in processes that fork, exit, are killed, or have modules of our names."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.headworks.codec.generated_packages import environment
from tests.producer_sdk.events import Site, new_site

pytestmark = pytest.mark.e2e

PRELUDE = """
import os, signal, sys, datetime as dt
from producer_sdk import Producer, close_on_sigterm
from {package}.web import Visit
def visit(): return Visit(user="ada", at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC), seconds=5)
producer = Producer(
    {bootstrap!r}, {registry!r}, application="child", state_dir={state!r}, audit_every=60,
    registry_timeout=60, close_timeout=60,
)
"""


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def run(site: Site, code: str, *, bootstrap: str | None = None) -> subprocess.CompletedProcess[str]:
    module = site.one.__name__.partition(".")[0]
    folder = site.state.parent
    prelude = PRELUDE.format(
        package=module,
        bootstrap=bootstrap or site.bootstrap,
        registry=site.registry,
        state=str(site.state),  # as text, because users give it so
    )
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(code)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_exit_without_a_broker_says_what_is_left(site: Site) -> None:
    done = run(
        site,
        """
        producer._close_timeout = 0.3
        for _ in range(10): producer.send(visit())
        """,
        bootstrap="127.0.0.1:1",
    )
    assert done.returncode == 0
    assert "10 messages were not delivered" in done.stderr


def test_an_application_may_have_modules_of_our_names(site: Site) -> None:
    folder = site.state.parent
    for name in ("broker", "registry", "audit", "ci", "cli", "console", "hadoop_loader"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')\n")
    done = run(
        site,
        f"""
        from consumer_sdk import Consumer
        producer.send(visit())
        assert producer.close() == 0
        with Consumer([Visit], group="own", bootstrap={site.bootstrap!r},
                      registry={site.registry!r}) as consumer:
            print(next(iter(consumer)).event.user)
        """,
    )
    assert (done.returncode, done.stdout) == (0, "ada\n"), done.stderr
