"""The rules that each variant of the tools keeps: read as they are, and given input."""
