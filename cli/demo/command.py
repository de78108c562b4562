"""`headworks demo`: run the whole pipeline in a temporary folder, and show the result."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.output import Format, FormatOption, print_json, print_status
from headworks.errors import FindingsError, UsageError

if TYPE_CHECKING:
    from headworks._cli.demo.installation import Installation
    from headworks._cli.demo.run import Demo

_SLICE_SECONDS = 0.5


def demo(
    limit: Annotated[
        int | None, typer.Option(min=2, help="send at most this many rows per topic")
    ] = None,
    on: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="use the installation that this settings file names: broker, registry, Spark, "
            "metastore, and warehouse; the demo deletes there what it made",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="keep everything running at the end, with a console, until Ctrl-C"
        ),
    ] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            help="use this broker, HOST:PORT; the demo's topics must not exist there, and are "
            "deleted at the end"
        ),
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Run the whole pipeline on 336,776 real flights and show that it adds up."""
    from headworks._cli.demo.progress import DemoProgress
    from headworks._cli.demo.run import Demo
    from headworks._cli.demo.summary import as_json, print_summary

    there = _installation(on, bootstrap)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = DemoProgress()
    with tempfile.TemporaryDirectory(prefix="headworks-demo-") as folder:
        run = Demo(Path(folder), limit=limit, progress=progress, there=there, keep=keep)
        try:
            outcome = run.run()
            if format is Format.JSON:
                print_json(as_json(outcome))
            else:
                print_summary(outcome)
            sys.stdout.flush()
            if keep:
                _keep(run)
        except KeyboardInterrupt:
            # Descriptor 2 leads nowhere while Spark's JVM starts; the progress has one of its own.
            progress.note("interrupted: stopping everything")
            raise typer.Exit(130) from None
        finally:
            run.close()
    answers = outcome.answers
    assert answers is not None
    if not answers.old_rows_show_default or outcome.audit["lost"] or outcome.audit["duplicated"]:
        raise FindingsError("the demo ran, but its figures do not add up: see the summary above")


def _installation(file: Path | None, bootstrap: str | None) -> Installation | None:
    """Return where the demo runs, or None if it starts every server."""
    from headworks._cli.demo.installation import Installation

    if file is None:
        return Installation(bootstrap) if bootstrap else None
    if bootstrap is not None:
        raise UsageError("--bootstrap and --on both name a broker", fix="give one of them")
    # Every part and command of the demo uses this file, and no other setting.
    for variable in [name for name in os.environ if name.startswith("HEADWORKS_")]:
        del os.environ[variable]
    os.environ["HEADWORKS_CONFIG"] = str(file.resolve())
    return Installation.read(file)


def _keep(run: Demo) -> None:
    """Start the console, print its address and commands to try, and wait for Ctrl-C."""
    run.explore()
    print_status(
        f"""
console   {run.console_url}   every screen shows the demo
broker    {run.bootstrap}
registry  {run.registry_url}
hive      {run.hive_address}

Try, in another terminal:

  export HEADWORKS_BOOTSTRAP={run.bootstrap}
  export HEADWORKS_REGISTRY={run.registry_url}
  export HEADWORKS_HIVE={run.hive_address}
  headworks consume flights --max 3
  headworks schema list
  headworks sql "SELECT carrier, count(*) FROM flights GROUP BY carrier"
  headworks audit status

Ctrl-C stops everything."""
    )
    while True:  # in slices: see `interrupted_start`
        time.sleep(_SLICE_SECONDS)
