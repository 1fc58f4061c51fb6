"""Which weights a server has, seen from outside: nothing of Truing runs in the server."""
