"""The classic protocol: members join, one of them computes the plan, the coordinator hands it out."""
