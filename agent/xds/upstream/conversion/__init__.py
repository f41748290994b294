"""Types that the agent converts before Envoy gets them, or refuses in its place."""
