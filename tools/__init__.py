"""Development tools: nothing here ships with the package."""
