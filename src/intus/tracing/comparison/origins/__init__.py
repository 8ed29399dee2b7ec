"""Origins of what differs between two passes."""
