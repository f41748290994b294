"""The small tools of hooks and scripts: `wait` and `request`. They import next to nothing."""
