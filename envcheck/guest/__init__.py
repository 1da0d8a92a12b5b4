"""The part that observes: facts only, standard library only, no tolerance and no verdict."""
