"""How a start is prepared: addresses, settings, and what is checked before anything is touched."""

import os
import pwd
import resource
from pathlib import Path

import pytest

from penstock.cli.errors import CommandError, WrongUseError
from penstock.cli.options import parse_pairs
from penstock.cli.running.start import (
    load_config,
    parse_address,
    permission_advice,
    prepare_data_dir,
    raise_file_limit,
)
from penstock.config.settings import Source
from penstock.core.endpoints import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("PLAINTEXT://broker.example:1", Address("broker.example", 1)),
        ("[::1]:9092", Address("::1", 9092)),
        ("PLAINTEXT://:9092", Address("0.0.0.0", 9092)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "host:", "host:port", "host:70000"])
def test_what_is_no_address_is_wrong_use(text: str) -> None:
    with pytest.raises(WrongUseError, match="HOST:PORT"):
        parse_address(text)


def test_a_protocol_we_do_not_serve_is_refused() -> None:
    with pytest.raises(CommandError, match="only PLAINTEXT"):
        parse_address("SASL_SSL://host:9092")


def test_pairs_keep_later_equals_signs_and_the_last_word() -> None:
    assert parse_pairs("--set", ["a=1", "b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}


def test_named_address_is_what_the_broker_describes() -> None:
    config = load_config({}, Address("::1", 1234))
    assert config.values["listeners"] == ("PLAINTEXT://[::1]:1234",)
    [listener] = config.listeners
    assert listener.address == Address("::1", 1234)


def test_two_addresses_that_contradict_each_other_are_wrong_use() -> None:
    with pytest.raises(WrongUseError, match="give one address"):
        load_config({"listeners": "SASL_SSL://host:1"}, Address("127.0.0.1", 9092))


def test_listens_on_this_machine_alone_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_LISTENERS", raising=False)
    config = load_config({}, None)
    assert [listener.address for listener in config.listeners] == [Address("127.0.0.1", 9092)]
    [described] = config.describe(["listeners"])
    assert (described.value, described.source) == ("PLAINTEXT://127.0.0.1:9092", Source.STATIC_BROKER)
    monkeypatch.setenv("PENSTOCK_LISTENERS", "PLAINTEXT://:9999")
    assert [listener.address for listener in load_config({}, None).listeners] == [Address("0.0.0.0", 9999)]


def test_one_data_dir() -> None:
    with pytest.raises(CommandError, match=r"log\.dirs"):
        load_config({"log.dirs": "a,b"}, None)


def test_a_listener_that_is_not_served_is_refused_with_its_setting() -> None:
    with pytest.raises(CommandError, match=r"listeners has SSL, .* docs/configuration.md"):
        load_config({"listeners": "PLAINTEXT://a:1,SSL://b:2"}, None)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="absent"):
        load_config({}, None, tmp_path / "absent.toml")


def test_data_dir_without_write_permission_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so permissions alone cannot show it.
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK))
    with pytest.raises(CommandError, match="chmod"):
        prepare_data_dir(tmp_path)


def test_data_dir_is_new_once(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert prepare_data_dir(path)
    (path / "topics").mkdir()
    assert not prepare_data_dir(path)


def test_file_limit_is_raised_to_what_the_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        assert raise_file_limit() == (min(512, before[1]), before[1])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_only_its_owner_is_told_to_change_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert permission_advice(tmp_path) == f"give yourself write permission (chmod u+rwx {tmp_path})"
    owner = pwd.getpwuid(tmp_path.stat().st_uid).pw_name
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert permission_advice(tmp_path).startswith(f"it belongs to {owner}: run the broker as {owner}")
