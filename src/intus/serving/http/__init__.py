"""The HTTP side of the servers: routes, authentication, event stream, client for the next server."""
