"""Touches processes and files and writes down what it sees; decides nothing."""
