"""`python -m tests.soak PROOF ...`: the long forms. Exit 0 when all is well."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.hadoop_loader import agreement
from tests.soak import (
    alarms,
    cluster,
    codec,
    damage,
    decoders,
    fire,
    fuzz,
    fuzz_login,
    healthy,
    kills,
    loads,
    membership,
    mirror,
    producers,
    projection,
    readers,
    redrive,
    sanitized,
    siege,
    slow_handlers,
    snapshots,
    spark_cluster,
    state_folders,
    transactions,
    troubles,
    usage,
    volumes,
    workers,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    proofs = parser.add_subparsers(dest="proof", required=True)
    for name, what in (
        ("kills", "kill the broker under load"),
        ("cuts", "cut its power under load (simulated)"),
        ("cluster", "kill, pause and cut off the brokers of a cluster, and its ZooKeeper"),
        ("loader", "kill the loader at every step of its work"),
        ("troubles", "fail in one table of a warehouse, and kill the loader beside it"),
        ("mirror", "kill a mirror, and the clusters beside it, under load"),
        ("transactions", "kill the broker and the clients of transactions"),
        ("redrive", "kill a redrive of 100,000 dead letters"),
        ("snapshots", "kill loaders that publish to Iceberg, and read every snapshot"),
        ("state-folders", "hurt the state folders of producers"),
        ("workers", "end worker processes of every kind, and count what their producers sent"),
        ("damage", "damage files at rest, and follow the way out that the program names"),
        ("readers", "draw pairs of schemas, and read data beside Avro Java and fastavro"),
    ):
        one = proofs.add_parser(name, help=what)
        one.add_argument("count", type=int, help="how many times")
    for name, what in (
        ("parser", "fuzz the parsers in this process"),
        ("fuzz", "fuzz a broker over its sockets"),
        ("membership", "attack a group without a coordinator, over three brokers"),
        ("slow-handlers", "handle messages slowly, in members that join and leave"),
        ("login", "fuzz what comes before a login to a guarded broker"),
        ("codec", "draw schemas, and encode and decode events of them beside fastavro"),
        ("projection", "draw schemas, and project data of them beside Avro Java"),
        ("decoders", "damage data of drawn schemas, and decode it compiled and in Python"),
        ("sanitized", "test and fuzz the C extensions under ASan and UBSan (needs gcc)"),
        ("producer", "hurt producers in every way, and count their messages"),
        ("usage", "kill programs of many versions, and ask which are in use"),
        ("healthy", "look at a healthy installation, of which nothing may be red"),
    ):
        one = proofs.add_parser(name, help=what)
        one.add_argument("--minutes", type=float, default=10.0, help="how long")
    one = proofs.add_parser("audit", help="kill everything, and hold the audit against a ledger")
    one.add_argument("--minutes", type=float, default=5.0, help="how long")
    one.add_argument("--spark", action="store_true", help="with the real loader")
    proofs.add_parser("volumes", help="replay a year of flights with injected drops and spikes")
    proofs.add_parser("alarms", help="cause troubles on running servers, of which rules must know")
    proofs.add_parser("spark", help="load on two Spark workers with a metastore, and kill one")
    proofs.choices["workers"].add_argument("--peers", type=Path, help="where pip put servers")
    slow = proofs.choices["slow-handlers"]
    slow.add_argument("--slowest", type=float, default=60.0, help="seconds a message takes at most")
    for one in proofs.choices.values():
        one.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 31))
        one.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="headworks-soak-"))
    report = _run(arguments, folder)
    print(report)
    if report.wrong:
        print(f"the broker's folder and log are left in {folder}")
    elif arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if report.wrong else 0


def _run(
    arguments: argparse.Namespace, folder: Path
) -> (
    kills.Report
    | loads.Report
    | spark_cluster.Report
    | siege.Report
    | mirror.Report
    | membership.Report
    | slow_handlers.Report
    | fire.Report
    | agreement.Report
    | cluster.Report
    | damage.Report
    | troubles.Report
    | snapshots.Report
    | transactions.Report
    | volumes.Report
    | redrive.Report
    | healthy.Report
    | state_folders.HurtFolders
    | workers.EndedWorkers
    | alarms.Report
    | usage.Report
):
    seed = arguments.seed
    if arguments.proof == "membership":
        return membership.campaign(folder, arguments.minutes * 60, seed)
    if arguments.proof == "slow-handlers":
        return slow_handlers.campaign(folder, arguments.minutes * 60, seed, arguments.slowest)
    if arguments.proof == "state-folders":
        return state_folders.campaign(folder, arguments.count, seed)
    if arguments.proof == "workers":
        return workers.campaign(folder, arguments.count, arguments.peers)
    if arguments.proof == "login":
        return fuzz_login.fuzz_login(folder, arguments.minutes * 60, seed)
    if arguments.proof == "codec":
        return codec.draw_schemas(folder, arguments.minutes * 60, seed)
    if arguments.proof == "decoders":
        return decoders.decode_damage(folder, arguments.minutes * 60, seed)
    if arguments.proof == "sanitized":
        return sanitized.fuzz_sanitized(folder, arguments.minutes * 60, seed)
    if arguments.proof == "projection":
        return projection.compare(folder, arguments.minutes * 60, seed)
    if arguments.proof == "producer":
        return producers.hurt(folder, arguments.minutes * 60, seed)
    if arguments.proof == "alarms":
        return alarms.campaign(folder)
    if arguments.proof == "usage":
        return usage.campaign(folder, arguments.minutes * 60, seed)
    if arguments.proof == "healthy":
        return healthy.watch(folder, arguments.minutes * 60, seed)
    if arguments.proof == "parser":
        return fuzz.fuzz_parser(arguments.minutes * 60, seed)
    if arguments.proof == "fuzz":
        return fuzz.fuzz_wire(folder, arguments.minutes * 60, seed)
    if arguments.proof == "volumes":
        return volumes.replay(seed)
    if arguments.proof == "spark":
        return spark_cluster.prove(folder, seed)
    if arguments.proof == "loader":
        return loads.campaign(folder, arguments.count, seed)
    if arguments.proof == "troubles":
        return troubles.campaign(folder, arguments.count, seed)
    if arguments.proof == "snapshots":
        return snapshots.campaign(folder, arguments.count, seed)
    if arguments.proof == "transactions":
        return transactions.campaign(folder, arguments.count, seed)
    if arguments.proof == "redrive":
        return redrive.campaign(folder, arguments.count, seed)
    if arguments.proof == "mirror":
        return mirror.campaign(folder, arguments.count, seed)
    if arguments.proof == "readers":
        return readers.read_alike(folder, arguments.count, seed)
    if arguments.proof == "damage":
        return damage.campaign(folder, arguments.count, seed)
    if arguments.proof == "cluster":
        return cluster.campaign(folder, arguments.count, seed)
    if arguments.proof == "audit":
        return fire.campaign(folder, arguments.minutes * 60, seed, spark=arguments.spark)
    return kills.campaign(folder, arguments.count, seed, power=arguments.proof == "cuts")


if __name__ == "__main__":
    sys.exit(main())
