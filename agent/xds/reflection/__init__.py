"""gRPC server reflection on Envoy's socket: for people with grpcurl."""
