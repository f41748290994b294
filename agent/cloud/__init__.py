"""Which cloud the pod runs in, asked of its metadata service while everything else starts."""
