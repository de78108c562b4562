"""What deploy/ promises holds: every command parses, every path exists, and every port is served.

No container engine is needed: the files are parsed, and the units are verified by systemd's own
tool.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from headworks._cli.main import command_line
from headworks._settings import SETTINGS
from tests.tools import needs

pytestmark = pytest.mark.unit

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OUTGROWN = yaml.safe_load((DEPLOY / "compose.outgrown.yaml").read_text(encoding="utf-8"))
SHAPES = ("kafka", "cluster")
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
PROGRAM = "/opt/headworks/bin/headworks"
OURS = {name: one for name, one in COMPOSE["services"].items() if "headworks" in one["image"]}
LISTENS = ("--listen", "--metrics", "--serve")


def parse(words: list[str]) -> None:
    """Parse a command line as `headworks` does, without running it. Raises for a wrong one."""
    command: Any = typer.main.get_command(command_line())
    context = None
    while hasattr(command, "commands"):
        context = command.make_context(words[0], [], parent=context, resilient_parsing=True)
        command, words = command.commands[words[0]], words[1:]
    command.make_context("headworks", words, parent=context)


def lines_of(unit: Path) -> list[list[str]]:
    """The commands of a unit, without the program."""
    text = unit.read_text(encoding="utf-8")
    found = [shlex.split(line) for line in re.findall(r"^ExecStart\w*=(.*)$", text, re.MULTILINE)]
    assert found
    assert {line[0] for line in found} == {PROGRAM}
    return [line[1:] for line in found]


def addresses(words: list[str]) -> set[str]:
    """The addresses at which a command listens."""
    return {words[at + 1] for at, word in enumerate(words) if word in LISTENS}


def defaults() -> set[str]:
    """The addresses at which servers listen without an option."""
    values = (SETTINGS[name].default or "" for name in ("bootstrap", "registry", "console"))
    return {value.rpartition("/")[2] for value in values}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_every_command_of_a_unit_is_one(unit: Path) -> None:
    for line in lines_of(unit):
        parse(line)


def test_a_wrong_command_would_be_found() -> None:
    with pytest.raises(Exception, match="--metric"):
        parse(["broker", "start", "--metric", "127.0.0.1:9400"])


@needs("systemd")
@pytest.mark.contract
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "headworks"
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace(PROGRAM, str(program))
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    names = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "headworks" in line]
    assert (done.returncode, ours) == (0, [])


def test_units_run_as_one_user_without_more_rights_and_survive_failures() -> None:
    for unit in UNITS:
        parser = ConfigParser(interpolation=None, strict=False)
        parser.read_string(unit.read_text(encoding="utf-8"))
        service = parser["Service"]
        assert service["User"] == "headworks", unit
        assert service["StateDirectory"] == "headworks", unit
        assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict"), unit
        assert service["Restart"] == "always", unit
        assert int(service["LimitNOFILE"]) >= 16384, unit
        for name in service.get("Wants", "").split() + parser["Unit"]["After"].split():
            assert not name.startswith("headworks-") or (DEPLOY / "systemd" / name).is_file(), name


def test_the_settings_of_the_units_are_settings() -> None:
    found = tomllib.loads((DEPLOY / "headworks.toml").read_text(encoding="utf-8"))
    assert found.keys() <= SETTINGS.keys()
    assert found["data_dir"] == "/var/lib/headworks"


@pytest.mark.parametrize("name", OURS)
def test_every_service_of_the_compose_file_runs_a_command_of_an_image(name: str) -> None:
    service = OURS[name]
    parse(shlex.split(service["command"]))
    build = service["build"]
    assert build["target"] in re.findall(r"^FROM .* AS (\S+)$", CONTAINERFILE, re.MULTILINE)
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    assert service["read_only"] is True
    if "healthcheck" in service:
        program, *line = service["healthcheck"]["test"][1:]
        assert program == "headworks"
        parse(line)


def test_every_published_port_is_on_loopback_and_served() -> None:
    served = {"127.0.0.1:9090", "127.0.0.1:3000"}  # Prometheus, Grafana
    for service in OURS.values():
        served |= addresses(shlex.split(service["command"]))
    ports = {address.rpartition(":")[2] for address in served}
    for published in COMPOSE["services"]["broker"]["ports"]:
        host, outside, inside = published.split(":")
        assert (host, outside) == ("127.0.0.1", inside)
        assert inside in ports, published


def test_all_share_one_network_whose_owner_publishes_the_ports() -> None:
    services = COMPOSE["services"]
    assert {one.get("network_mode") for name, one in services.items() if name != "broker"} == {
        "service:broker"
    }
    assert not [name for name, one in services.items() if "ports" in one and name != "broker"]
    for one in services.values():
        assert set(one.get("depends_on", ())) <= services.keys()


def test_every_mounted_file_exists_and_every_volume_is_declared() -> None:
    for service in COMPOSE["services"].values():
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), mount
            else:
                assert source in COMPOSE["volumes"], mount


@pytest.mark.parametrize(
    "name", [name for name, one in OUTGROWN["services"].items() if "headworks" in one["image"]]
)
def test_every_service_of_the_large_shape_runs_a_command_of_an_image(name: str) -> None:
    service = OUTGROWN["services"][name]
    parse(shlex.split(service["command"]))
    assert service["build"]["target"] == ("spark" if name.startswith("load") else "server")
    assert service["read_only"] is True
    assert service["environment"].keys() <= {one.variable for one in SETTINGS.values()}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_the_servers_that_it_names(shape: str) -> None:
    lines = (DEPLOY / f"{shape}.env").read_text(encoding="utf-8").splitlines()
    values = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert values["COMPOSE_PROFILES"] == shape
    started = {
        name
        for name, one in OUTGROWN["services"].items()
        if one.get("profiles", [shape]) == [shape]
    }
    settings = OUTGROWN["services"]["registry-1"]["environment"]
    addresses = f"{values['BROKERS']},{values['ZOOKEEPER']},{settings['HEADWORKS_REGISTRY']}"
    named = {one.group(1) for one in re.finditer(r"([a-z]+-\d):\d+", addresses)}
    numbered = {name for name in started if re.fullmatch(r"[a-z]+-\d", name)}
    assert numbered == named | {"audit-1", "audit-2", "load-1", "load-2"}
    assert len(values["BROKERS"].split(",")) == 3
    stores = " ".join(
        [settings["HEADWORKS_AUDIT_STORE"], OUTGROWN["services"]["registry-1"]["command"]]
    )
    assert set(re.findall(r"@([a-z-]+)/", stores)) <= started


def test_the_large_shape_declares_its_volumes_and_publishes_on_loopback() -> None:
    mounted = set()
    for service in OUTGROWN["services"].values():
        assert {*service.get("depends_on", ())} <= OUTGROWN["services"].keys()
        mounted |= {mount.split(":")[0] for mount in service.get("volumes", ())}
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert mounted == OUTGROWN["volumes"].keys()


def test_prometheus_reads_every_metrics_page_and_no_other() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    scraped = {target for one in job["static_configs"] for target in one["targets"]}
    lines = [line for unit in UNITS for line in lines_of(unit)]
    for commands in (lines, [shlex.split(one["command"]) for one in OURS.values()]):
        pages = {words[words.index("--metrics") + 1] for words in commands if "--metrics" in words}
        assert scraped == pages | {"127.0.0.1:8081"}
    mounts = " ".join(COMPOSE["services"]["prometheus"]["volumes"])
    (pattern,) = PROMETHEUS["rule_files"]
    assert list(DEPLOY.glob(pattern))
    assert f"/etc/prometheus/{Path(pattern).parent}:" in mounts


def test_grafana_finds_the_dashboard_and_prometheus() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://127.0.0.1:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "headworks.yaml").read_text())[
        "providers"
    ]
    mounts = COMPOSE["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts


def test_the_images_run_as_a_user_over_folders_that_exist(root: Path) -> None:
    base = CONTAINERFILE.partition("AS base\n")[2]
    assert "USER 10001:10001" in base
    assert "USER root" not in base
    assert re.findall(r"^FROM base AS (\w+)$", base, re.MULTILINE) == ["server", "spark"]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        name
        for group in re.findall(r"/checkout\[([\w,]+)\]", CONTAINERFILE)
        for name in group.split(",")
    }
    assert extras <= project["optional-dependencies"].keys()
    exposed = set(
        re.findall(r"\d+", " ".join(re.findall(r"^EXPOSE (.*)$", CONTAINERFILE, re.MULTILINE)))
    )
    assert exposed == {address.rpartition(":")[2] for address in defaults()} | {"10000"}
