"""Producer, broker, registry and consumer together, as processes."""
