"""Tests of the broker, layer by layer and through real clients."""
