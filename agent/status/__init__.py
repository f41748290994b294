"""The status server: readiness, application probes, merged metrics, lifecycle endpoints."""
