"""TLS towards servers of the pod."""
