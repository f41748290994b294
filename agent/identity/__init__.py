"""Workload identity: keys, certificates from the CA or from files, and SDS for Envoy."""
