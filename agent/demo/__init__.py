"""A pod in throw-away network namespaces, captured, proxied, probed and drained for real."""
