"""One stream of Envoy, with what was kept at hand."""
