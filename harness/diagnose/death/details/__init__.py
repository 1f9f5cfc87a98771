"""What a verdict tells besides its kind."""
