"""Secrets in files: each is read when asked for, and followed from then on."""
