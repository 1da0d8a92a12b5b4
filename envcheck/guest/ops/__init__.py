"""Operations to run on a card: one module for each family, in `catalogue` in order of value."""
