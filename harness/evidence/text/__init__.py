"""Texts of others: read strictly, cleaned for a terminal, secrets taken out."""
