"""What Envoy starts from: proxy configuration, node identity and the bootstrap file."""
