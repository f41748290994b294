"""gRPC channels to the control plane and the CA, and the TLS of those that a policy restricts."""
