"""Options that several commands share, one by one."""

from __future__ import annotations

from typing import Annotated

import typer

BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap", help="HOST:PORT of a broker (setting bootstrap)")
]
ZooKeeperOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        help="find the brokers at this ZooKeeper, HOST:PORT[,..][/chroot] (setting zookeeper)",
    ),
]
RegistryOption = Annotated[
    str | None, typer.Option("--registry", help="URL of the schema registry (setting registry)")
]
DataDirOption = Annotated[
    str | None, typer.Option("--data-dir", help="folder of all state (setting data_dir)")
]
WarehouseOption = Annotated[
    str | None,
    typer.Option("--warehouse", help="folder of the Hive tables (setting warehouse)"),
]
DatabaseOption = Annotated[
    str | None, typer.Option("--database", help="database in Hive (setting database)")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="audit store, sqlite:///FILE or postgresql://.. (setting audit_store)"
    ),
]
