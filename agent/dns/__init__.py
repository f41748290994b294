"""The DNS proxy: names of the mesh from istiod's table, all others from the pod's own resolvers."""
