"""Settings: a flag beats `HEADWORKS_*` beats `headworks.toml` beats the default.

Rules:

- The table SETTINGS has every setting with its meaning, and `headworks config show` prints it.
- A file with an unknown setting is refused, so that a typo has no silent effect.
- An empty variable counts as unset, because shells, units, and compose files unset variables so.
- The file is `headworks.toml` in the current folder, or the one in HEADWORKS_CONFIG.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headworks._toml_text import read_toml
from headworks.errors import UsageError

FILE_NAME = "headworks.toml"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, its default (None: unset), and its meaning."""

    name: str
    default: str | None
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"HEADWORKS_{self.name.upper()}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value of a setting, and its source."""

    name: str
    value: str | None
    source: str


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("bootstrap", "127.0.0.1:9092", "address of the broker, HOST:PORT[,HOST:PORT]"),
        Setting("zookeeper", None, "address of ZooKeeper, HOST:PORT[,HOST:PORT..][/chroot]"),
        Setting(
            "registry",
            "http://127.0.0.1:8081",
            "address of the schema registry, or several on one store",
        ),
        Setting("console", "http://127.0.0.1:8090", "address of the web console"),
        Setting("data_dir", "headworks-data", "folder that holds all state on this machine"),
        Setting("schemas", "schemas", "folder of the event catalog (.avsc files)"),
        Setting(
            "warehouse",
            None,
            "folder of the Hive tables, hdfs://HOST:PORT/FOLDER or s3a://BUCKET/FOLDER "
            "(default: data_dir/warehouse)",
        ),
        Setting("database", "default", "Hive database in which the tables appear"),
        Setting("audit_store", None, "store of the audit (default: audit.db in data_dir)"),
        Setting(
            "metastore", None, "thrift://HOST:PORT of a Hive metastore; unset: an embedded one"
        ),
        Setting(
            "iceberg", None, "URL of an Iceberg catalog that each load is published to; unset: none"
        ),
        Setting(
            "recursive_types",
            "refuse",
            "topics whose schema contains itself: refuse, or json (text from there on)",
        ),
        Setting(
            "masked_database",
            None,
            "Hive database for views without sensitive values; unset: there are none",
        ),
        Setting("spark_master", "local[2,3]", "where Spark runs: local[N], spark://HOST:PORT, ..."),
        Setting("hive", None, "address of a running HiveServer2, HOST:PORT"),
        Setting("username", None, "user for the broker and the registry"),
        Setting("password", None, "that user's password"),
        Setting("tls_ca", None, "file of CA certificates; enables TLS to the broker"),
        Setting("users", None, "servers: file of users (`headworks user set`)"),
        Setting("access", None, "servers: file of grants (who may read and write what)"),
        Setting("host_names", None, "registry, console: host names to answer under, with commas"),
        Setting("tls_cert", None, "servers: certificate, PEM"),
        Setting("tls_key", None, "servers: its key, PEM"),
        Setting("log_format", "text", "servers: text, or json (one object a line)"),
        Setting("log_level", "info", "servers: debug, info, warning or error"),
    )
}


def lookup(
    name: str,
    flag: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Resolved:
    """Resolve setting `name` to its value and source.

    Raises KeyError for a name that is not in SETTINGS, UsageError for a bad `headworks.toml`.
    """
    setting = SETTINGS[name]
    if flag is not None:
        return Resolved(name, os.fspath(flag), "flag")
    environment = os.environ if env is None else env
    from_environment = environment.get(setting.variable)
    if from_environment:
        return Resolved(name, from_environment, f"${setting.variable}")
    named = environment.get("HEADWORKS_CONFIG")
    path = Path(named or (folder or Path()) / FILE_NAME)
    from_file = _read(path, required=bool(named))
    if name in from_file:
        return Resolved(name, from_file[name], str(path))
    if name == "warehouse":
        base = lookup("data_dir", env=env, folder=folder)
        return Resolved(name, str(Path(str(base.value)) / "warehouse"), f"data_dir ({base.source})")
    return Resolved(name, setting.default, "default")


def resolve(name: str, flag: str | os.PathLike[str] | None = None) -> str:
    """Return the value of a setting; UsageError if it has none."""
    value = resolve_optional(name, flag)
    if value is None:
        variable = SETTINGS[name].variable
        raise UsageError(
            f"setting {name!r} has no value",
            fix=f"give --{name.replace('_', '-')}, set ${variable}, or write it in {FILE_NAME}",
        )
    return value


def resolve_optional(name: str, flag: str | os.PathLike[str] | None = None) -> str | None:
    """Return the value of a setting, or None if it has none."""
    return lookup(name, flag).value


def _read(path: Path, *, required: bool) -> dict[str, str]:
    """Read a settings file; its tables (`[gate]`, ...) belong to the parts that define them."""
    content = read_toml(path)
    if content is None:
        if required:
            raise UsageError(f"settings file {path} does not exist")
        return {}
    values = {name: value for name, value in content.items() if not isinstance(value, dict)}
    for name, value in values.items():
        if name not in SETTINGS:
            raise UsageError(
                f"{path} sets {name!r}, which is not a setting",
                fix=f"use one of {', '.join(SETTINGS)}",
            )
        if not isinstance(value, str):
            raise UsageError(f"{path}: {name} must be a string, not {value!r}")
    return values
