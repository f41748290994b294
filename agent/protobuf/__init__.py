"""Protobuf messages, mostly as bytes: read and changed without the library where possible."""
