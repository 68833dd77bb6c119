"""What a subscription lets through."""
