"""One run at a time in a network namespace, and who holds the lock of the legacy tools."""
