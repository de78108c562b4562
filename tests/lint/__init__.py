"""Checks of our own that `make lint` runs beside ruff and mypy."""
