"""Record batches, the protocol, and the clients."""
