"""How each client library performs the operations of the catalog."""
