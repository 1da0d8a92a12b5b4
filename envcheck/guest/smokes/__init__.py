"""Short runs of installed packages, one file for each, compared with plain torch in float64."""
