"""The merged page where nothing may stand twice, nor in the wrong place."""
