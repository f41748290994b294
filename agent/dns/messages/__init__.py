"""All that knows DNS messages, on dnspython: loaded when Envoy has its configuration."""
