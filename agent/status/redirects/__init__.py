"""How the pod is asked by HTTP: redirects are followed as the kubelet follows them."""
