"""A model, its index, and what is known of the items."""
