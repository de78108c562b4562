"""The kernel: wire format, settings, services, errors."""
