"""The progress of the demo on stderr: steps, and bars on a terminal.

Rules: on a terminal, rich draws steps and bars. Elsewhere each finished step is one line, and a
long one prints a line every ten seconds, so that a log stays readable.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from headworks._cli.progress_lines import ProgressLines, own_stderr

_EVENTS_PER_UPDATE = 1000


class DemoProgress:
    """Steps and bars on stderr."""

    def __init__(self) -> None:
        self._stderr = own_stderr()
        weakref.finalize(self, self._stderr.close)
        self._console = Console(file=self._stderr, highlight=False)
        self._terminal = self._stderr.isatty()
        self._lines: ProgressLines | None = None  # of the step that runs, without a terminal

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show that a step begins, and how long it took when it is done."""
        began = time.monotonic()
        if self._terminal:
            self._console.print(f"[bold]{title}[/bold]")
            yield
        else:
            # A copy of descriptor 2 made now may lead nowhere: Spark's JVM starts beside the steps.
            with ProgressLines(title, to=self._stderr) as self._lines:
                yield
        self._console.print(f"  {title}: {time.monotonic() - began:.1f} s", style="green")

    def note(self, text: str) -> None:
        """Show a line within a step."""
        self._console.print(f"  {text}", style="dim", markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        """A bar of `total` steps; the value is the function to call after each."""
        columns = (
            TextColumn("  {task.description:10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Bars(*columns, console=self._console, disable=not self._terminal) as bars:
            task = bars.add_task(title, total=total)
            done = 0

            def advance() -> None:
                nonlocal done
                done += 1
                if done % _EVENTS_PER_UPDATE == 0:
                    bars.update(task, completed=done)
                    if self._lines is not None:
                        self._lines.show(f"{title}: {done:,} of {total:,}")

            yield advance
            bars.update(task, completed=done)
