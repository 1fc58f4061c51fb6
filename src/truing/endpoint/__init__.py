<<<<<<< HEAD
"""The endpoint: an HTTP server through which a program talks to the policy as to a model's API."""
=======
"""The endpoint: an HTTP server through which programs talk to the policy, as to a model's API."""
>>>>>>> dialects
