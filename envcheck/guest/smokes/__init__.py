"""What each extension that people install is tried with on a card: one file for each."""
