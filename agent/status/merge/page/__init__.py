"""The merged page, piece by piece."""
