"""What notices that a control plane neither reads nor writes any more."""
