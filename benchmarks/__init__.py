"""Speed compared with the naive way, measured in pairs within one run: `make bench`."""
