"""Wasm modules of Envoy's extensions: fetched, kept on disk, and handed to Envoy as local files."""
