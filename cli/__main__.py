"""`python -m headworks._cli`: the command line without its console script.

Our processes start each other this way, because the script need not be on the caller's PATH.
"""

from headworks._cli.main import run

run()
