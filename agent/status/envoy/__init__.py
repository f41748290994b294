"""What Envoy's admin port says of its being ready."""
