"""The endpoint: an HTTP server through which programs talk to the policy, as to a model's API."""
