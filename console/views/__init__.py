"""One module a screen: from what the sources said to the frozen values that a page shows.

Rules: pure reading. A view takes readings and what may be seen, and gives the same for HTML and
JSON; it never asks a source for a list, and leaves out what may not be seen.
"""
