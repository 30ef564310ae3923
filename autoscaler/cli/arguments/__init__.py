"""Command-line arguments: parameter types, shared options, shell completion, and the choice of the place."""
