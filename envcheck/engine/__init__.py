"""Where an environment lives, and how the guest is started in it."""
