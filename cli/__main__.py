"""`python -m headworks._cli`: the command line without its console script.

Our processes start each other this way, because the script need not be on the caller's PATH.
`headworks/__main__.py` is a link to this module, so that users can run `python -m headworks`.
"""

from headworks._cli.main import run

run()
