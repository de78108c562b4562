"""Ports that a server keeps, which the kernel gives to no other process, and ports in use."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headworks._cli.stack.ports import free_ports
from tests.command_line import run_command

pytestmark = pytest.mark.e2e


def test_the_kernel_gives_none_of_them_to_others(tmp_path: Path) -> None:
    handed_out = tmp_path / "range"
    handed_out.write_text("20030\t60999\n")
    found = free_ports(20, handed_out=handed_out)
    assert len(set(found)) == 20
    assert all(20_000 <= port < 20_030 for port in found)


def test_one_that_somebody_listens_on_is_left_out(tmp_path: Path) -> None:
    handed_out = tmp_path / "range"
    handed_out.write_text("20010 60999")
    [taken] = free_ports(1, handed_out=handed_out)
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in free_ports(10, handed_out=handed_out)


@pytest.mark.parametrize("text", ["", "none", "1024 65535"])
def test_there_are_ports_where_the_range_says_nothing_or_all(tmp_path: Path, text: str) -> None:
    handed_out = tmp_path / "range"
    handed_out.write_text(text)
    assert len(set(free_ports(3, handed_out=handed_out))) == 3
    assert free_ports(1, handed_out=tmp_path / "absent")


@pytest.mark.parametrize("option", ["--broker", "--registry", "--console"])
def test_up_names_its_own_option_for_a_port_in_use(tmp_path: Path, option: str) -> None:
    free = dict(zip(("--broker", "--registry", "--console"), free_ports(3), strict=True))
    places = [text for name, port in free.items() for text in (name, f"127.0.0.1:{port}")]
    with socket.create_server(("127.0.0.1", free[option])):
        done = run_command("up", "--data-dir", "data", *places, cwd=tmp_path)
    assert done.returncode == 2
    assert f"another process listens on 127.0.0.1:{free[option]}" in done.stderr
    assert f"give another address with {option}" in done.stderr
    assert not (tmp_path / "data").exists()
