"""Tests as on macOS: see `sitecustomize`."""
