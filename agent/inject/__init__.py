"""The pod that an injector writes: a workload in, the same workload with this agent in it out."""
