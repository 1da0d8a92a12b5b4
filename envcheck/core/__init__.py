"""Values and rules without I/O, shared by host and guest (Python 3.10 or newer)."""
