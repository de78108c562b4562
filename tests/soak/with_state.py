"""`python -m tests.soak.with_state FOLDER MODULE ...`: run a module with its state in a folder."""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    folder, module = sys.argv[1:3]
    os.environ["XDG_STATE_HOME"] = folder
    sys.argv[:3] = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
