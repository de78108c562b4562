"""What a newcomer waits for and stores, measured from nothing: scripts to run by hand and in CI."""
