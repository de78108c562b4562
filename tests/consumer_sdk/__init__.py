"""The consumer: decoding, groups, and offsets."""
