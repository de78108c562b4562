"""`python -m tests.outgrown`: the demo on the large shape, then losses (`make outgrown`).

`--limit N` sends at most N rows of a topic, `--losses N` lets N machines be lost under load,
`--no-demo` begins with the losses, and `--keep` leaves the servers until Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.outgrown.losses import Campaign
from tests.outgrown.shape import Shape, running_shape


def main() -> int:
    """Run the demo there, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.outgrown", description=__doc__)
    parser.add_argument("--limit", type=int, help="rows of a topic at most (default: all)")
    parser.add_argument("--losses", type=int, default=0, help="machines to lose (default: 0)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-demo", action="store_true", help="begin with the losses")
    parser.add_argument("--keep", action="store_true", help="keep the servers until Ctrl-C")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headworks-outgrown-") as folder:
        began = time.monotonic()
        with running_shape(Path(folder)) as shape:
            print(f"started in {time.monotonic() - began:.0f} s; settings:", file=sys.stderr)
            print(shape.settings.read_text(encoding="utf-8"), file=sys.stderr)
            code = 0 if options.no_demo else _demo(shape, options.limit)
            if options.losses and code == 0:
                report = Campaign(shape, options.seed).run(options.losses)
                print(report)
                code = 1 if report.wrong else 0
            if options.keep:
                signal.pause()
        return code


def _demo(shape: Shape, rows: int | None) -> int:
    limit = [] if rows is None else ["--limit", str(rows)]
    demo = [sys.executable, "-P", "-m", "headworks._cli", "demo", "--on", str(shape.settings)]
    return subprocess.run([*demo, *limit], env=shape.environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
