"""`spark-submit` with the loader in an archive: beside the driver, and on a standalone cluster.

SPARK_HOME names another Spark than the installed PySpark. The Python that runs has no package of
ours: driver and executors have the loader from the archive's folder alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.test_killed import Stack
from tests.hadoop_loader.test_loading import V1
from tests.soak.hive import java, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.minutes]

CHECKOUT = Path(__file__).parents[2]
SPARK = "org.apache.spark.deploy"
MESSAGES = 100
LIBRARIES = sysconfig.get_paths()["purelib"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files in `site`, archives of them, and the program."""
    folder = tmp_path_factory.mktemp("package")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", folder], cwd=CHECKOUT, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "site")
    with tarfile.open(folder / "headworks.tar.gz", "w:gz") as archive:
        for entry in sorted((folder / "site").iterdir()):
            archive.add(entry, entry.name)  # Hadoop refuses an archive with an entry `./`
    with zipfile.ZipFile(folder / "headworks.zip", "w") as plain:
        for path in sorted((folder / "site").rglob("*")):
            if path.suffix != ".so":
                plain.write(path, path.relative_to(folder / "site"))
    (folder / "program.py").write_text("from headworks._cli.main import run\n\nrun()\n")
    return folder


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    broker = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "broker")]
    registry = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    with child_process.start(broker) as logs, child_process.start(registry) as schemas:
        yield Stack(tmp_path, logs, schemas)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """The address of a master with one worker."""
    port = free_ports(1)[0]
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    with java(tmp_path, "master", "", f"{SPARK}.master.Master", *here, "--port", str(port)):
        wait_for(port)
        address = f"spark://127.0.0.1:{port}"
        worker = (f"{SPARK}.worker.Worker", *here, "-c", "1", "-m", "1g", address)
        with java(tmp_path, "worker", "", *worker):
            yield address


def submit(
    package: Path, stack: Stack, master: str, *arguments: str, py_files: bool = False
) -> Any:
    """Return the JSON that the command line prints when `spark-submit` runs it."""
    import pyspark

    carried = ["--archives", f"{package}/headworks.tar.gz#headworks"]
    driver, executor = f"{package}/site:{LIBRARIES}", f"headworks:{LIBRARIES}"
    if py_files:
        carried = ["--py-files", f"{package}/headworks.zip"]
        driver = executor = LIBRARIES
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    ran = subprocess.run(
        [
            f"{home}/bin/spark-submit",
            *("--master", master, *carried),
            *("--conf", f"spark.executorEnv.PYTHONPATH={executor}"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *(f"{package}/program.py", *arguments, "--format", "json"),
        ],
        env={
            **os.environ,
            "SPARK_HOME": home,
            "PYSPARK_PYTHON": os.path.realpath(sys.executable),
            "PYTHONPATH": driver,
            "HEADWORKS_BOOTSTRAP": stack.broker.address,
            "HEADWORKS_REGISTRY": stack.registry.url,
            "HEADWORKS_DATA_DIR": str(stack.folder / "data"),
        },
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-5000:]
    # spark-submit sends what Python writes to stderr to its own stdout
    begins = re.search(r"^[\[{]", ran.stdout, re.MULTILINE)
    assert begins is not None, ran.stdout
    return json.JSONDecoder().raw_decode(ran.stdout[begins.start() :])[0]


def test_one_jvm_loads(package: Path, stack: Stack) -> None:
    _loads(package, stack, "local[2]")


def test_a_standalone_cluster_loads_and_answers(
    package: Path, stack: Stack, standalone: str
) -> None:
    _loads(package, stack, standalone)
    question = "SELECT count(*) AS n, sum(n) AS total FROM clicks"
    wanted = [{"n": MESSAGES, "total": MESSAGES * (MESSAGES - 1) // 2}]
    assert submit(package, stack, standalone, "sql", question) == wanted


def test_py_files_are_enough_for_plain_python(package: Path, stack: Stack, standalone: str) -> None:
    _loads(package, stack, standalone, py_files=True)


def _loads(package: Path, stack: Stack, master: str, *, py_files: bool = False) -> None:
    registered = RegistryClient(stack.registry.url).register("clicks-value", json.dumps(V1))
    stack.produce(V1, registered.id, range(MESSAGES))
    report = submit(package, stack, master, "load", "run", py_files=py_files)
    assert report["rows"] == MESSAGES
