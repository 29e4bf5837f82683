"""What this broker asks of others: of the controller, and as controller or leader of any broker."""
