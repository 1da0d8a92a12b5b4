"""How reports look. Only these modules and the command line print."""
