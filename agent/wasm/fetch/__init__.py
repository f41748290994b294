"""Fetches modules; runs in a child process only, which takes a library too large for every pod."""
