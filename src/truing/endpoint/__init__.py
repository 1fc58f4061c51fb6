"""The endpoint: an HTTP server through which a program of its own talks to the policy, as to a model's API."""
