"""What changed from one saved look to another; pure, as judging is."""
