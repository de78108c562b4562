"""`python -m cli`: the command line without its console script (how services are started)."""

from cli.main import run

run()
