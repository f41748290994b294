"""The protocol of OCI registries."""
