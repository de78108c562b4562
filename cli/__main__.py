"""`python -m cli`: the command line without its console script (in a checkout)."""

from cli.main import run

run()
