"""The Kubernetes API as far as workloads reach: its types, its normal form, its merge."""
