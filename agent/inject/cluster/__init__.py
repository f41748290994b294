"""What the injector knows of its cluster: kubelet versions, namespaces, ProxyConfig resources."""
