"""gRPC probes: one health call over plain HTTP/2, from the source address that capture exempts."""
