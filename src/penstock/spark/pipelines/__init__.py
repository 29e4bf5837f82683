"""Pipelines on Spark: each is a command (`penstock pipeline …`) and the same as a Python function.

Importing this package needs neither PySpark nor Java.
"""
