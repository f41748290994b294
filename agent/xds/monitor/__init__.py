"""What Envoy was sent and what it said to that, for metrics and for whoever asks."""
