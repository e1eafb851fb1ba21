"""Questions to measure with: data sets, BEIR folders, padding."""
