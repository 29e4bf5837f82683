"""Transactions, for those who write in them or coordinate them."""
