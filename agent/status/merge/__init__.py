"""The metrics page: the agent's own, Envoy's and the application's, fetched and streamed."""
