"""One module per screen: from the sources' snapshots to the frozen values that a page shows.

Rules: pure reading. A view takes snapshots and a visibility, and returns the same values for HTML
and JSON. It never asks a server for a list, and leaves out invisible names.
"""
