"""The certificate that the CA issues for this workload, and its renewal."""
