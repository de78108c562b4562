"""Scripts that measure, from nothing, the time and disk that a newcomer needs."""
