"""The kernel's notices of changed files."""
