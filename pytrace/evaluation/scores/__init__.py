"""Every statistic of an evaluation."""
